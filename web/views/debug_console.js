// The console of a session, and what its program prints, as it prints it.
import {el, make} from "../base/dom.js";
import {valueNode} from "./debug_state.js";

export class ConsolePart {
  constructor(view) {
    this.view = view, this.past = [], this.at = 0;
    this.out = el("div", {class: "console", role: "log", "aria-label": "console"});
    this.input = el("input", {class: "mono", placeholder: "evaluate in the chosen frame", "aria-label": "evaluate", autocomplete: "off", list: "completions"}), this.names = el("datalist", {id: "completions"});
    this.box = el("section", {class: "panel", "aria-label": "Console"}, make("h2", "Console"), this.out, el("form", {onsubmit: e => (e.preventDefault(), this.run())}, this.input, this.names));
    this.input.addEventListener("keydown", e => {
      const by = {ArrowUp: -1, ArrowDown: 1}[e.key];
      if (!by || !this.past.length) return;
      e.preventDefault(), this.at = Math.max(0, Math.min(this.past.length, this.at + by)), this.input.value = this.past[this.at] || "";
    });
    this.input.addEventListener("input", () => (clearTimeout(this.timer), this.timer = setTimeout(() => this.complete(), 150)));
  }
  async complete() {
    const text = this.input.value;
    if (!this.view.stopped || !/[\w.]$/.test(text)) return;
    try {
      const a = await this.view.ask("complete", {text, frame: this.view.frame});
      this.names.replaceChildren(...a.completions.slice(0, 40).map(c => el("option", {value: text.slice(0, a.start) + c.name}, c.kind)));
    } catch { /* no names then */ }
  }
  async run() {
    const expression = this.input.value.trim();
    if (!expression) return;
    this.past.push(expression), this.at = this.past.length, this.input.value = "";
    const answer = el("div", {class: "answer"}, make("span", "…", "dim"));
    this.out.append(make("div", `› ${expression}`, "mono"), answer), this.out.scrollTop = 1e9;
    try {
      const a = await this.view.tell("eval", {expression, frame: this.view.frame});
      answer.replaceChildren(a.printed ? make("pre", a.printed) : "", a.value ? valueNode(this.view, a.value, expression) : make("span", a.assigned?.length ? `assigned ${a.assigned.join(", ")}` : "done", "dim"));
      this.view.variables.draw(), this.view.watch.draw();
    } catch (error) { answer.replaceChildren(make("span", error.message, "bad")); }
    this.out.scrollTop = 1e9;
  }
}

const MOST_LINES = 5000;

export class OutputPart {
  constructor(view) {
    this.view = view, this.next = 1, this.pre = el("pre", {class: "output", role: "log", tabindex: 0, "aria-label": "output"});
    this.box = el("section", {class: "panel", "aria-label": "Output"}, make("h2", "Output"), this.pre);
  }
  async draw() {
    if (this.busy) return this.again = true;
    this.busy = true;
    try {
      const a = await this.view.ask("log", {from: this.next, lines: 2000}), bottom = this.pre.scrollTop + this.pre.clientHeight > this.pre.scrollHeight - 30;
      if (a.lines.length) {
        this.pre.append(a.lines.join("\n") + "\n"), this.next = a.next;
        while (this.pre.childNodes.length > MOST_LINES / 50) this.pre.firstChild.remove();
        if (bottom) this.pre.scrollTop = 1e9;
      } else if (!this.pre.textContent) this.pre.dataset.empty = "nothing printed yet";
    } catch { /* told elsewhere */ }
    this.busy = false;
    clearTimeout(this.timer);
    if (this.again) this.again = false, this.draw();
    else if (this.view.status?.state === "running" && !this.view.closed) this.timer = setTimeout(() => this.draw(), 300);
  }
}
