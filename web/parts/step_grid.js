// <ls-step-grid>: error over stages and steps, a row for each stage of the loop and a column for each step.
import {el, tip} from "../base/dom.js";
import {num, short} from "../base/numbers.js";
import {css, prepared, redrawn} from "./canvas.js";
import {ERROR, HIT, NAME, PASS, ROLE, STATE, STEP, isBad, titleOf} from "./rows.js";

export class StepGrid extends HTMLElement {
  connectedCallback() {
    if (this.canvas) return;
    this.stages = [], this.loop = [], this.chosen = null;
    this.canvas = el("canvas", {class: "plot grid", tabindex: 0, role: "img", "aria-label": "error over stages and steps"});
    this.append(this.canvas);
    const canvas = this.canvas;
    canvas.addEventListener("mousemove", e => {
      const i = this.at(e);
      tip(e, i !== undefined && `${titleOf(this.all.at(i))}: ${short(this.all.at(i)[ERROR])}`);
    });
    canvas.addEventListener("mouseleave", e => tip(e));
    canvas.addEventListener("click", e => this.tell(this.at(e)));
    canvas.addEventListener("keydown", e => {
      const by = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[e.key];
      const y = this.stages.findIndex(cells => [...cells.values()].includes(this.chosen));
      if (!by || y < 0) return;
      e.preventDefault();
      const x = this.loop.indexOf(this.all.at(this.chosen)[STEP]);
      this.tell(this.stages[y + by[0]]?.get(this.loop[x + by[1]]));
    });
    redrawn(canvas, () => this.draw());
  }
  set rows(rows) {
    this.all = rows;
    this.loop = rows.steps.filter(s => s >= 0), this.stages = [];
    const known = new Map();
    rows.list.forEach((r, i) => {
      if (r[STEP] < 0 || r[STATE] === "unread") return;
      const key = [r[ROLE], r[NAME], r[PASS], r[HIT]].join("\n");
      if (!known.has(key)) known.set(key, this.stages.length), this.stages.push(new Map());
      this.stages[known.get(key)].set(r[STEP], i);
    });
    this.canvas.style.height = Math.max(120, Math.min(480, this.stages.length * 14)) + "px";
    this.draw();
  }
  get useful() { return this.loop.length > 1; }
  choose(i) { this.chosen = i, this.draw(); }
  get labels() { return Math.min(250, this.canvas.clientWidth * .36); }  // room for the stages' names
  draw() {
    if (!this.useful || !this.canvas.clientWidth) return;
    const [g, w, h] = prepared(this.canvas), names = this.labels, high = h - 18;
    const cw = (w - names) / this.loop.length, ch = high / this.stages.length;
    const bad = css("--bad"), good = css("--good"), apart = Math.max(1, Math.ceil(13 / ch));
    g.fillStyle = css("--dim");
    this.stages.forEach((cells, y) => {
      if (y % apart) return;
      const r = this.all.at(cells.values().next().value), words = (r[ROLE] === "input" ? "→ " : "") + r[NAME] + (r[PASS] ? ` ${r[PASS]}` : "");
      const room = Math.floor(names / 6);
      g.fillText(words.length > room ? "…" + words.slice(1 - room) : words, 6, Math.max(10, (y + .5) * ch + 4), names - 12);
    });
    this.stages.forEach((cells, y) => this.loop.forEach((step, x) => {
      const i = cells.get(step);
      if (i === undefined) return;
      const r = this.all.at(i), over = Math.log10(Math.max(1e-30, num(r[ERROR])) / Math.max(1e-30, this.all.limit(i)));
      g.globalAlpha = isBad(r) ? .35 + .65 * Math.min(1, isFinite(over) ? over / 4 : 1) : Math.max(.06, Math.min(.45, .45 + over / 6));
      g.fillStyle = isBad(r) ? bad : good;
      g.fillRect(names + x * cw, y * ch, Math.max(1, cw - (cw > 6)), Math.max(.6, ch - (ch > 4)));
      if (i === this.chosen) g.globalAlpha = 1, g.strokeStyle = css("--ink"), g.strokeRect(names + x * cw, y * ch, Math.max(2, cw - 1), Math.max(2, ch - 1));
    }));
    g.globalAlpha = 1, g.fillStyle = css("--dim");
    const every = Math.max(1, Math.ceil(this.loop.length / 25));
    this.loop.forEach((step, x) => x % every || g.fillText(String(step), names + 4 + x * cw, h - 5));
  }
  at(e) {
    const box = this.canvas.getBoundingClientRect(), names = this.labels;
    const cells = this.stages[Math.floor((e.clientY - box.top) / (box.height - 18) * this.stages.length)];
    return cells && cells.get(this.loop[Math.floor((e.clientX - box.left - names) / (box.width - names) * this.loop.length)]);
  }
  tell(row) {
    if (row !== undefined) this.dispatchEvent(new CustomEvent("choose", {detail: row, bubbles: true}));
  }
}
customElements.define("ls-step-grid", StepGrid);
