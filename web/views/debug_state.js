// What the stopped program holds: stack, variables with tensors as small pictures, watched expressions, breakpoints, checkpoints.
import {button, el, make} from "../base/dom.js";
import {short} from "../base/numbers.js";

const tensorWords = t => `${t.dtype} ${t.shape.join(" × ") || "scalar"}${t.device && t.device !== "cpu" ? ` · ${t.device}` : ""}`;

// A value as words, and a tensor as a picture once it is asked for.
export function valueNode(view, value, expression) {
  if (!value) return make("span", "–", "dim");
  if (!value.tensor) return make("span", value.text ?? "", "mono");
  const box = el("span", {class: "tensor-value"}, make("span", tensorWords(value.tensor), "mono"));
  if (value.tensor.stats) box.append(make("span", ` ${short(value.tensor.stats.min)} … ${short(value.tensor.stats.max)}`, "dim"));
  if (expression && value.tensor.count > 1) pictureOf(view, expression).then(image => image && box.prepend(image));
  return box;
}

async function pictureOf(view, expression) {
  try {
    const p = await view.tell("picture", {expression, frame: view.frame});
    return el("img", {class: "thumb", src: `data:image/png;base64,${p.png || p.base64}`, alt: `picture of ${expression}`, title: `${short(p.min)} to ${short(p.max)}`});
  } catch { return null; }
}

class Part {
  constructor(view, title) {
    this.view = view, this.body = el("div", {}), this.number = 0;
    this.box = el("section", {class: "panel", "aria-label": title}, make("h2", title), this.body);
  }
  // Asked anew while an older answer is under way: only the newest is shown.
  async fill(ask, draw) {
    const number = ++this.number;
    if (!this.view.stopped) return this.body.replaceChildren(make("div", this.idle || "the program is running", "dim"));
    try {
      const answer = await ask();
      if (number === this.number) draw(answer);
    } catch (error) { if (number === this.number) this.body.replaceChildren(make("div", error.message, "dim")); }
  }
}

export class StackPart extends Part {
  constructor(view) { super(view, "Stack"); }
  draw() {
    return this.fill(() => this.view.ask("stack", {limit: 100}), ({frames}) => {
      this.frames = frames;
      this.body.replaceChildren(...frames.map(f => button([make("span", f.location.function, "mono"), make("span", ` ${f.location.file.split("/").at(-1)}:${f.location.line}`, "dim")], () => this.view.setFrame(f.index), {class: `frame${f.library ? " library" : ""}`, "aria-pressed": String(f.index === this.view.frame), title: `${f.location.file}:${f.location.line}`})));
      if (this.view.frame) this.showFrame();
    });
  }
  showFrame() {
    const f = this.frames?.find(one => one.index === this.view.frame);
    if (f) this.view.source.show(f.location, f.index > 0);
  }
}

export class VariablesPart extends Part {
  constructor(view) { super(view, "Variables"), this.open = new Set(); }
  draw() {
    return this.fill(() => this.view.ask("vars", {frame: this.view.frame, limit: 200}), answer => {
      this.body.replaceChildren(...answer.variables.map(v => this.row(v, 0)));
      if (answer.truncated) this.body.append(make("div", `${answer.total} variables; these are the first`, "dim"));
    });
  }
  row(v, level) {
    const parts = v.parts && v.parts.named + v.parts.indexed > 0, below = el("div", {});
    const fold = button(parts ? "▸" : "", () => this.unfold(v, level, fold, below), {class: "quiet fold", disabled: !parts, "aria-label": `parts of ${v.name}`, "aria-expanded": "false"});
    const row = el("div", {class: "variable", title: v.value?.type}, el("span", {class: "indent"}), fold, make("span", v.name, "mono name"), valueNode(this.view, v.value, v.expression || v.name));
    row.firstChild.style.setProperty("--level", level);
    return el("div", {}, row, below);
  }
  async unfold(v, level, fold, below) {
    const open = below.childNodes.length === 0;
    fold.textContent = open ? "▾" : "▸", fold.setAttribute("aria-expanded", String(open));
    if (!open) return below.replaceChildren();
    try { below.replaceChildren(...(await this.view.ask("vars", {of: v.expression || v.name, frame: this.view.frame, limit: 100})).variables.map(p => this.row(p, level + 1))); } catch (error) { below.replaceChildren(make("div", error.message, "dim")); }
  }
}

export class WatchPart extends Part {
  constructor(view) {
    super(view, "Watch");
    this.key = `lockstep-watch-${view.id}`, this.list = JSON.parse(sessionStorage.getItem(this.key) || "[]");
    const input = el("input", {placeholder: "expression", "aria-label": "expression to watch", class: "mono"});
    this.box.append(el("form", {class: "filters", onsubmit: e => (e.preventDefault(), input.value.trim() && (this.list.push(input.value.trim()), this.keep()), input.value = "")}, input, el("button", {type: "submit"}, "Watch")));
  }
  keep() { sessionStorage.setItem(this.key, JSON.stringify(this.list)), this.draw(); }
  async draw() {
    const rows = this.list.map((expression, k) => {
      const value = el("span", {}, make("span", "…", "dim"));
      if (this.view.stopped) this.view.tell("eval", {expression, frame: this.view.frame, timeout: 2}).then(a => value.replaceChildren(valueNode(this.view, a.value, expression)), error => value.replaceChildren(make("span", error.message, "bad")));
      else value.replaceChildren(make("span", "–", "dim"));
      return el("div", {class: "variable"}, make("span", expression, "mono name"), value, button("×", () => (this.list.splice(k, 1), this.keep()), {class: "quiet", "aria-label": `remove ${expression}`}));
    });
    this.body.replaceChildren(...rows);
  }
}

export class BreaksPart extends Part {
  constructor(view) { super(view, "Breakpoints"); }
  async draw() {
    const number = ++this.number;
    try {
      const list = (await this.view.ask("breaks")).breakpoints;
      if (number !== this.number) return;
      this.body.replaceChildren(...(list.length ? list.map(b => this.row(b)) : [make("div", "none; click beside a line", "dim")]));
    } catch (error) { this.body.replaceChildren(make("div", error.message, "dim")); }
  }
  row(b) {
    const why = el("div", {}), words = b.file && b.line ? `${b.file.split("/").at(-1)}:${b.line}` : b.where || b.checkpoint || b.module || "";
    return el("div", {}, el("div", {class: "variable"}, el("span", {class: `dot ${b.state === "verified" ? "off" : "idle"}`}), make("span", words, "mono name"), make("span", `${b.condition ? `if ${b.condition} · ` : ""}stopped ${b.hit_count ?? 0} of ${b.reached ?? 0} times`, "dim"),
      b.hit_count ? "" : button("Why?", async () => {
        try {
          const a = await this.view.ask("why", {which: String(b.id)});
          why.replaceChildren(make("div", a.answer, "card"), ...a.causes.slice(1, 4).map(c => make("div", c.message, "dim")));
        } catch (error) { why.replaceChildren(make("div", error.message, "dim")); }
      }, {class: "quiet"}), button("×", async () => (await this.view.tell("remove", {which: String(b.id)}).catch(() => {}), this.draw(), this.view.source.marks()), {class: "quiet", "aria-label": `remove breakpoint ${b.id}`})), b.message ? make("div", b.message, "dim") : "", why);
  }
}

export class CheckpointsPart extends Part {
  constructor(view) { super(view, "Checkpoints"); }
  async draw() {
    const number = ++this.number;
    try {
      const list = (await this.view.ask("checkpoints")).checkpoints;
      if (number !== this.number) return;
      this.box.hidden = !list.length;
      this.body.replaceChildren(...list.slice(0, 200).map(c => el("div", {class: "variable"}, make("span", c.name, "mono name"), make("span", `${c.hits} ×`, "dim"), button("Stop there", () => this.view.source.set({checkpoint: c.name}), {class: "quiet"}))));
    } catch { this.box.hidden = true; }
  }
}
