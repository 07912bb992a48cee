// <ls-curve>: error over the stages of a run. `shown` are the rows on the curve, `view` the part of them in sight.
import {button, el, make, options, tip} from "../base/dom.js";
import {num, short} from "../base/numbers.js";
import {css, prepared, redrawn} from "./canvas.js";
import {ERROR, NAME, ROLE, STATE, STEP, isBad, stepWords, titleOf} from "./rows.js";

const LEFT = 54, RIGHT = 10, TOP = 8;
const groupOf = r => r[NAME].split(".")[0];

export class ErrorCurve extends HTMLElement {
  connectedCallback() {
    if (this.plot) return;
    this.view = [0, 1], this.shown = [], this.axis = [-9, 1], this.chosen = null;
    this.step = el("select", {class: "curve-step", "aria-label": "denoising step", onchange: () => this.pick()});
    this.roleBox = el("select", {class: "curve-role", "aria-label": "role", onchange: () => this.pick()});
    this.plot = el("canvas", {class: "plot", tabindex: 0, role: "img", "aria-label": "error over the stages"});
    this.append(el("div", {class: "filters"}, this.step, this.roleBox,
      button("Zoom in", () => this.zoom(this.middle(), .5), {class: "zoom-in"}),
      button("Zoom out", () => this.zoom(this.middle(), 2), {class: "zoom-out"}),
      button("Whole run", () => this.pick(), {class: "reset"}),
      make("span", "wheel zooms, drag moves, a click chooses", "dim wide-only")), this.plot);
    this.listen();
    redrawn(this.plot, () => this.draw());
  }
  set rows(rows) {
    this.all = rows;
    options(this.step, "all steps", rows.steps, stepWords), options(this.roleBox, "inputs and outputs", rows.distinct(ROLE));
    this.pick();
  }
  choose(i) {
    this.chosen = i;
    const k = this.shown.indexOf(i);
    if (k >= 0 && (k < this.view[0] || k >= this.view[1])) {
      const span = this.view[1] - this.view[0];
      this.setView(k - span / 2, k + span / 2);
    } else this.draw();
  }
  pick() {
    const step = this.step.value, role = this.roleBox.value, all = this.all;
    this.shown = [];
    all.list.forEach((r, i) => {
      if ((!step || String(r[STEP]) === step) && (!role || r[ROLE] === role) && r[STATE] !== "unread") this.shown.push(i);
    });
    this.view = [0, Math.max(1, this.shown.length)];
    let low = 0, high = -12;
    for (const i of this.shown) for (const v of [num(all.at(i)[ERROR]), all.limit(i)])
      if (v > 0 && isFinite(v)) low = Math.min(low, Math.floor(Math.log10(v))), high = Math.max(high, Math.ceil(Math.log10(v)));
    this.axis = high > low ? [Math.max(-12, low - 1), Math.min(12, high)] : [-9, 1];
    this.plot.setAttribute("aria-label", `error over ${this.shown.length} stages; ${this.shown.filter(i => all.bad(i)).length} beyond their limit`);
    this.draw();
  }
  draw() {
    if (!this.all || !this.plot.clientWidth) return;
    const [g, w, h] = prepared(this.plot), [lo, hi] = this.axis, [from, to] = this.view, span = to - from, named = span <= 36;
    const all = this.all, shown = this.shown, bottom = h - (named ? 118 : 22), X = k => LEFT + (k + .5 - from) / span * (w - LEFT - RIGHT);
    const Y = v => TOP + (hi - Math.max(lo, Math.min(hi, v > 0 ? Math.log10(v) : lo))) / (hi - lo) * (bottom - TOP);
    const a = Math.max(0, Math.floor(from)), b = Math.min(shown.length, Math.ceil(to)), row = k => all.at(shown[k]);
    for (let k = a, at = 0; k < b;) {  // bands behind the parts of the model: text encoder, transformer, ...
      let end = k + 1;
      const name = groupOf(row(k));
      while (end < b && groupOf(row(end)) === name) ++end;
      const x = Math.max(LEFT, X(k - .5)), x2 = Math.min(w - RIGHT, X(end - .5));
      if (at++ % 2) g.fillStyle = css("--band"), g.fillRect(x, TOP, x2 - x, bottom - TOP);
      if (x2 - x > 60) g.fillStyle = css("--dim"), g.fillText(name, x + 5, TOP + 12, x2 - x - 8);
      k = end;
    }
    g.strokeStyle = css("--line"), g.fillStyle = css("--dim");
    const every = Math.max(1, Math.ceil((hi - lo) / 8));
    for (let e = Math.ceil(lo / every) * every; e <= hi; e += every) {
      const y = Y(10 ** e);
      g.beginPath(), g.moveTo(LEFT, y), g.lineTo(w - RIGHT, y), g.stroke();
      g.fillText(e === lo ? "0" : `1e${e}`, 8, y + 4);
    }
    g.save(), g.beginPath(), g.rect(LEFT, 0, w - LEFT - RIGHT, h), g.clip();  // half a stage at either end
    g.strokeStyle = css("--dim"), g.setLineDash([3, 3]), g.beginPath();
    for (let k = a; k < b; ++k) g.lineTo(X(k), Y(all.limit(shown[k])));
    g.stroke(), g.setLineDash([]);
    const size = Math.max(1.6, Math.min(5, (w - LEFT) / span / 3)), bad = css("--bad"), good = css("--ref");
    for (const pass of [false, true])  // the bad ones on top
      for (let k = a; k < b; ++k) {
        const r = row(k), error = num(r[ERROR]);
        if (isBad(r) !== pass) continue;
        g.fillStyle = pass ? bad : good;
        g.beginPath(), g.arc(X(k), Y(isNaN(error) ? Infinity : error), size, 0, 7), g.fill();
      }
    g.restore();
    const line = (k, colour, words, y) => {
      if (k < a || k >= b) return;
      g.strokeStyle = g.fillStyle = colour;
      g.beginPath(), g.moveTo(X(k), TOP), g.lineTo(X(k), bottom), g.stroke();
      if (words) g.fillText(words, Math.min(X(k) + 4, w - 90), y);
    };
    line(shown.indexOf(this.chosen), css("--mark"));
    line(shown.indexOf(all.first), bad, "first divergence", TOP + 26);
    g.fillStyle = css("--dim");
    if (named)
      for (let k = a; k < b; ++k) {
        g.save(), g.translate(X(k) + 4, bottom + 8), g.rotate(.9);
        const words = row(k)[NAME];
        g.fillText((row(k)[ROLE] === "input" ? "→ " : "") + (words.length > 21 ? "…" + words.slice(-20) : words), 0, 0);
        g.restore();
      }
    else g.fillText(`stages ${a + 1} to ${b} of ${shown.length} in execution order; dashed: the limit`, LEFT, h - 7);
  }
  stageAt(e) {
    const box = this.plot.getBoundingClientRect();
    return this.view[0] + (e.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT) * (this.view[1] - this.view[0]);
  }
  setView(a, b) {
    const n = Math.max(1, this.shown.length), span = Math.min(n, Math.max(Math.min(8, n), b - a));
    a = Math.max(0, Math.min(n - span, a));
    this.view = [a, a + span];
    this.draw();
  }
  zoom(x, factor) { this.setView(x - (x - this.view[0]) * factor, x + (this.view[1] - x) * factor); }
  middle() {  // of the view, or the chosen stage where it is in sight
    const k = this.shown.indexOf(this.chosen);
    return k >= this.view[0] && k < this.view[1] ? k + .5 : (this.view[0] + this.view[1]) / 2;
  }
  tell(row) {
    if (row !== undefined) this.dispatchEvent(new CustomEvent("choose", {detail: row, bubbles: true}));
  }
  listen() {
    const plot = this.plot;
    let drag = null, moved = false;
    plot.addEventListener("wheel", e => (e.preventDefault(), this.zoom(this.stageAt(e), e.deltaY > 0 ? 1.25 : .8)), {passive: false});
    plot.addEventListener("pointerdown", e => (drag = [this.stageAt(e), e.clientX], moved = false));
    addEventListener("pointermove", e => {
      if (!drag) return;
      if (Math.abs(e.clientX - drag[1]) > 3) moved = true;
      if (moved) this.setView(this.view[0] + drag[0] - this.stageAt(e), this.view[1] + drag[0] - this.stageAt(e));
    });
    addEventListener("pointerup", e => {
      if (drag && !moved) this.tell(this.shown[Math.floor(this.stageAt(e))]);
      drag = null;
    });
    plot.addEventListener("mousemove", e => {
      const i = this.shown[Math.floor(this.stageAt(e))];
      tip(e, i !== undefined && `${titleOf(this.all.at(i))}: ${short(this.all.at(i)[ERROR])}, limit ${short(this.all.limit(i))}`);
    });
    plot.addEventListener("mouseleave", e => tip(e));
    plot.addEventListener("dblclick", () => this.pick());
    plot.addEventListener("keydown", e => {
      const by = {ArrowLeft: -1, ArrowRight: 1}[e.key], k = this.shown.indexOf(this.chosen);
      if (by) e.preventDefault(), this.tell(this.shown[Math.max(0, Math.min(this.shown.length - 1, k + by))]);
      if (e.key === "+" || e.key === "-") this.zoom(this.middle(), e.key === "+" ? .5 : 2);
    });
  }
}
customElements.define("ls-curve", ErrorCurve);
