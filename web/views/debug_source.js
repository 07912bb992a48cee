// The source with its breakpoints: a click beside a line sets or removes one, and says why one did not stop.
import {button, el, make} from "../base/dom.js";
import {failureCard} from "../parts/failure.js";

export class SourcePart {
  constructor(view) {
    this.view = view, this.file = "", this.lines = new Map();
    this.name = make("span", "", "mono dim"), this.pre = el("div", {class: "code", role: "group", tabindex: 0, "aria-label": "source"}), this.why = el("div", {});
    this.input = el("input", {placeholder: "FILE:LINE, function, statement", "aria-label": "breakpoint", size: 30}), this.condition = el("input", {placeholder: "if: expression", "aria-label": "condition", size: 18});
    const add = el("form", {class: "filters", onsubmit: e => (e.preventDefault(), this.set({where: this.input.value.trim(), ...(this.condition.value.trim() ? {if: this.condition.value.trim()} : {})}), this.input.value = this.condition.value = "")}, this.input, this.condition, el("button", {type: "submit"}, "Add breakpoint"));
    this.box = el("div", {class: "panel source-panel"}, this.name, this.pre, add, this.why);
    this.pre.addEventListener("keydown", e => {
      const by = {ArrowDown: 1, ArrowUp: -1}[e.key];
      if (by) e.preventDefault(), this.mark((this.marked || this.line || 1) + by);
      if (e.key === "Enter" || e.key === " ") e.preventDefault(), this.toggleHere();
    });
  }
  mark(line) {
    if (!this.lines.has(line)) return;
    this.lines.get(this.marked)?.classList.remove("marked"), this.marked = line;
    this.lines.get(line).classList.add("marked"), this.lines.get(line).scrollIntoView({block: "nearest"});
  }
  async show(at, other) {
    this.line = at?.line;
    if (!at && this.file) return this.current(null);
    try {
      const S = await this.view.ask("source", at ? {file: at.file, line: at.line, around: 200} : {});
      if (S.file === this.file && S.first === this.first && this.lines.has(at?.line)) return this.current(at.line, other);
      this.file = S.file, this.first = S.first, this.name.textContent = S.file, this.lines.clear();
      const executable = new Set(S.executable || []);
      this.pre.replaceChildren(...S.lines.map((text, k) => {
        const n = S.first + k, gutter = el("button", {class: "gutter", type: "button", tabindex: -1, "aria-label": `breakpoint at line ${n}`, onclick: () => this.toggle(n)}, String(n));
        const row = el("div", {class: `line${executable.has(n) ? "" : " idle"}`, onclick: () => this.mark(n)}, gutter, make("pre", text));
        this.lines.set(n, row);
        return row;
      }));
      this.current(at?.line, other), this.marks();
    } catch (error) { if (at) this.pre.replaceChildren(failureCard(error)); }
  }
  current(line, other) {
    this.pre.querySelector(".line.now")?.classList.remove("now", "outer");
    const row = this.lines.get(line);
    if (!row) return;
    row.classList.add("now"), row.classList.toggle("outer", !!other);
    const top = row.offsetTop - this.pre.offsetTop;
    if (top < this.pre.scrollTop + 40 || top > this.pre.scrollTop + this.pre.clientHeight - 60) this.pre.scrollTop = top - this.pre.clientHeight / 3;
  }
  async marks() {
    try { this.list = (await this.view.ask("breaks")).breakpoints; } catch { return; }
    for (const row of this.lines.values()) row.classList.remove("stop", "pending"), row.title = "";
    for (const b of this.list) for (const p of b.places?.length ? b.places : [b])
      if (p.file === this.file && this.lines.has(p.line)) this.lines.get(p.line).classList.add(b.state === "verified" ? "stop" : "pending"), this.lines.get(p.line).title = b.condition ? `if ${b.condition}` : "";
  }
  at(line) { return (this.list || []).find(b => (b.places?.length ? b.places : [b]).some(p => p.file === this.file && p.line === line)); }
  toggleHere() { this.toggle(this.marked || this.line); }
  async toggle(line) {
    if (!line) return;
    await this.marks();
    const there = this.at(line);
    if (!there) return this.set({where: `${this.file}:${line}`});
    try { await this.view.tell("remove", {which: String(there.id)}); } catch (error) { this.why.replaceChildren(failureCard(error)); }
    this.marks(), this.view.breaks.draw();
  }
  async set(args) {
    this.why.replaceChildren();
    try {
      const {breakpoint: b} = await this.view.tell("break", args);
      if (b.state === "invalid" || (b.message && b.state === "verified")) this.why.replaceChildren(el("div", {class: "card"}, `${b.state}${b.message ? `: ${b.message}` : ""} `, button("Dismiss", () => this.why.replaceChildren(), {class: "quiet"})));
    } catch (error) { this.why.replaceChildren(failureCard(error)); }
    this.marks(), this.view.breaks.draw();
  }
}
