// One run: its program, the tree of its tensors, and the tensor that is chosen.
import {linkTo, patch} from "../base/address.js";
import {read} from "../base/api.js";
import {afterPaint, el, make, options} from "../base/dom.js";
import {viewKeys} from "../base/keys.js";
import {bytesText, matcher, short, timeText} from "../base/numbers.js";
import {failureCard} from "../parts/failure.js";
import {ModuleTree} from "../parts/module_tree.js";
import {DTYPE, HIT, KEPT, MAX, MEAN, MIN, NAME, ODD, PASS, ROLE, SEQ, SHAPE, STD, STEP} from "../parts/run_rows.js";
import {TensorView} from "./tensor.js";
import "../parts/table.js";

const FIRST = 200, MORE = 100000;  // what one sees at once comes first

export class RunView {
  constructor(box, address) {
    this.id = address.id, this.rows = [], this.chosen = null, this.wanted = address.params.tensor, this.wantedStep = address.params.step || "";
    this.filter = el("input", {type: "search", placeholder: "part of a name, or a glob", "aria-label": "filter tensors", value: address.params.filter || "", oninput: () => this.refresh()});
    this.step = el("select", {"aria-label": "denoising step", hidden: true, oninput: () => this.refresh()});
    this.count = make("span", "", "dim"), this.head = el("div", {}), this.problem = el("div", {});
    this.table = el("ls-table", {label: "tensors", tree: true}), this.right = el("div", {class: "right"});
    box.append(el("div", {class: "columns"}, el("div", {class: "left"}, el("div", {class: "head"}, this.head, el("div", {class: "filters"}, this.filter, this.step, this.count)), this.problem, this.table), this.right));
    const row = i => this.rows[i], stat = (title, column) => ({title, width: "84px", cls: "number", text: id => typeof id === "string" ? "" : short(row(id)[column])});
    this.table.columns = [
      {title: "tensor", width: "minmax(190px, 2fr)", fill: (cell, id) => this.tree.cell(cell, id, this.label(id))},
      {title: "shape", width: "112px", text: id => typeof id === "string" ? `${this.tree.byPath.get(id).all} tensors` : row(id)[SHAPE].join(" × ") || "scalar"},
      {title: "dtype", width: "62px", text: id => typeof id === "string" ? "" : row(id)[DTYPE]}, stat("mean", MEAN), stat("std", STD), stat("min", MIN), stat("max", MAX)];
    this.table.rowClass = id => typeof id === "string" ? "" : row(id)[ODD] ? "mismatch" : row(id)[KEPT] ? "" : "unread";
    this.table.decorate = (element, id) => typeof id === "string" ? element.setAttribute("aria-expanded", this.tree.open.has(id)) : element.removeAttribute("aria-expanded");
    this.table.addEventListener("choose", e => typeof e.detail === "string" ? this.fold(e.detail) : this.choose(e.detail));
    this.table.addEventListener("fold", e => typeof e.detail[0] === "string" && this.fold(e.detail[0], e.detail[1]));
    this.tensor = new TensorView(this.right, this);
    this.keys(), this.load();
  }
  close() { this.closed = true, clearTimeout(this.timer); }
  address(now) {
    const i = this.rows.findIndex(r => String(r[SEQ]) === now.params.tensor);
    if (i >= 0 && i !== this.chosen) this.choose(i, true);
    else if (i >= 0) this.tensor.address(now);
  }
  keys() {
    const by = d => () => {
      // Of what a filter leaves, or of all: a module that is folded opens.
      const ids = this.flat ? this.table.ids : null, last = (ids || this.rows).length - 1, k = Math.max(0, Math.min(last, (ids ? ids.indexOf(this.chosen) : this.chosen) + d));
      if (last >= 0) this.choose(ids ? ids[k] : k, true);
    };
    const step = d => () => {
      const same = this.overSteps(this.chosen), k = same.indexOf(this.chosen);
      if (same[k + d] !== undefined) this.choose(same[k + d], true);
    };
    viewKeys([{keys: "j", words: "next tensor", run: by(1)}, {keys: "k", words: "previous tensor", run: by(-1)}, {keys: "[", words: "the same tensor a step earlier", run: step(-1)}, {keys: "]", words: "a step later", run: step(1)}],
      () => this.rows.slice(0, 20000).map((r, i) => ({words: r[NAME] + (r[STEP] < 0 ? "" : ` · step ${r[STEP]}`), kind: r[ROLE], run: () => this.choose(i, true)})));
  }
  async load() {
    clearTimeout(this.timer);
    try {
      const fresh = await read("runs/tensors", {run: this.id, limit: this.rows.length ? MORE : FIRST, from: this.rows.length});
      if (this.closed || fresh.from !== this.rows.length) return;  // asked twice: the other one took them
      this.problem.replaceChildren();
      const first = !this.answer, whole = this.rows.length + fresh.rows.length >= fresh.total;
      this.answer = fresh;
      if (fresh.rows.length || first) this.take(fresh.rows, first);
      if (first || fresh.status !== this.status) this.status = fresh.status, this.tell();
      if (this.chosen === null && this.rows.length) {
        const wanted = this.rows.findIndex(r => String(r[SEQ]) === this.wanted), kept = this.rows.findIndex(r => r[KEPT]);
        if (wanted >= 0 || whole || (!this.wanted && kept >= 0)) this.choose(wanted >= 0 ? wanted : Math.max(0, kept), true, wanted >= 0);
      }
      if (!whole) afterPaint(() => this.closed || this.load());
      else if (fresh.status === "running") this.timer = setTimeout(() => this.load(), 1000);
    } catch (error) {
      this.problem.replaceChildren(failureCard(error, () => this.load()));
      if (error.status === 404) this.problem.append(el("div", {class: "head"}, el("a", {href: linkTo("runs")}, "All runs")));
    }
  }
  take(rows, first) {
    for (const row of rows) this.rows.push(row);
    if (this.tree) this.tree.grow(this.rows.length);
    else this.tree = new ModuleTree(this.rows.length, i => this.rows[i][NAME]);
    const steps = [...new Set(this.rows.map(r => r[STEP]))].sort((a, b) => a - b), chosen = first ? this.wantedStep : this.step.value;
    options(this.step, "all steps", steps, s => s < 0 ? "outside the loop" : `step ${s}`), this.step.value = chosen;
    this.refresh();
    if (this.chosen !== null) this.tensor.grew();
  }
  async tell() {
    const a = this.answer;
    this.head.replaceChildren(el("div", {class: "crumbs"}, el("a", {href: linkTo("runs")}, "Runs"), "/", make("span", a.run)), make("h1", a.name || a.run, "title"));
    const chips = el("div", {class: "chips"}, make("span", a.status, "chip"));
    this.head.append(chips);
    await new Promise(afterPaint);
    try {
      const run = await read("runs/show", {run: this.id, limit: 1}), p = run.run.program || {};
      const words = Array.isArray(p.argv) ? p.argv.join(" ") : p.argv || p.script || "";
      chips.append(...[timeText(run.run.created), bytesText(run.summary.bytes), `${run.summary.records} records, ${run.summary.full_tensors} kept`,
        run.summary.not_finite ? `${run.summary.not_finite} not finite` : ""].filter(t => t).map(t => make("span", t, "chip")));
      if (words) this.head.append(make("div", words, "mono dim"));
      chips.append(el("a", {class: "chip", href: linkTo("runs", "", {reference: a.run})}, "compare with …"));
    } catch { /* the tensors are there all the same */ }
  }
  label(id) {
    if (typeof id === "string") return this.flat ? id : this.tree.byPath.get(id).label;
    const r = this.rows[id], name = this.flat ? r[NAME] : r[NAME].split(".").at(-1);
    return (r[ROLE] === "input" ? "→ " : "") + name + (r[STEP] < 0 ? "" : ` · ${r[STEP]}`) + (r[PASS] ? ` · ${r[PASS]}` : "") + (r[HIT] ? ` · hit ${r[HIT]}` : "");
  }
  refresh() {
    if (!this.tree) return;  // typed before the answer came
    const words = this.filter.value.trim(), step = this.step.value, named = matcher(words);
    patch({filter: words, step});
    this.flat = words !== "" || step !== "";
    const ids = this.flat ? this.rows.map((_, i) => i).filter(i => named(this.rows[i][NAME]) && (!step || String(this.rows[i][STEP]) === step)) : this.tree.visible();
    this.tree.level = this.flat ? () => 0 : ModuleTree.prototype.level;
    this.count.textContent = `${this.flat ? ids.length + " of " : ""}${this.answer.total}`;
    this.table.show(ids);
  }
  fold(path, open) {
    this.tree.toggle(path, open), this.table.chosen = path, this.refresh();
  }
  choose(i, reveal, push) {
    this.chosen = i;
    if (reveal && !this.flat) this.tree.reveal(i), this.refresh();
    this.table.choose(i, true);
    patch({tensor: this.rows[i][SEQ], ...(push ? {} : {slice: "", window: ""})});
    this.tensor.show(i);
  }
  // The same tensor at every step, in order.
  overSteps(i) {
    const r = this.rows[i];
    return r ? this.rows.map((_, k) => k).filter(k => [NAME, ROLE, PASS, HIT].every(c => this.rows[k][c] === r[c])) : [];
  }
}
