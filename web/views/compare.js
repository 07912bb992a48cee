// Compare: where two runs part. Tree, curve, grid, heat maps and source follow one selection.
import {go, linkTo, patch} from "../base/address.js";
import {read} from "../base/api.js";
import {afterPaint, button, el, make} from "../base/dom.js";
import {viewKeys} from "../base/keys.js";
import {matcher, short, timeText} from "../base/numbers.js";
import {emptyBox, failureCard} from "../parts/failure.js";
import {causeCards, divergenceCard, noteCards, verdictWords} from "../parts/findings.js";
import {ModuleTree} from "../parts/module_tree.js";
import {ERROR, NAME, ROLE, Rows, STATE, STEP, PASS, HIT, isBad, titleOf} from "../parts/rows.js";
import {MapEditor} from "./compare_map.js";
import {PairView} from "./compare_pair.js";
import {ComparedPictures, FinerRecord, LedgerPart, ZoomPart} from "./compare_parts.js";
import "../parts/curve.js";
import "../parts/step_grid.js";
import {plainTable} from "../parts/table.js";

export const QUESTION = ["reference", "candidate", "map", "only", "weights", "propose", "partial"];

export function open(box, address) {
  let inner = null, asked = "";
  const show = now => {
    const question = Object.fromEntries(QUESTION.filter(q => now.params[q]).map(q => [q, now.params[q]])), key = JSON.stringify(question);
    if (key === asked && inner) return inner.address(now);
    asked = key, inner?.close?.(), box.replaceChildren();
    inner = question.reference && question.candidate ? new CompareView(box, question, now) : new ChooseTwo(box, question);
  };
  show(address);
  return {address: show, close: () => inner?.close?.(), again: () => inner?.load?.()};
}

class ChooseTwo {
  constructor(box, question) {
    const list = el("datalist", {id: "runs"}), input = (name, words) => el("input", {name, list: "runs", required: true, size: 40, placeholder: "latest:NAME, or an id", value: question[name] || "", "aria-label": words});
    const recent = el("div", {}), reference = input("reference", "reference run"), candidate = input("candidate", "your run");
    box.append(el("div", {class: "pad"}, make("h1", "Compare two runs", "title"), el("form", {class: "card", onsubmit: e => (e.preventDefault(), go("compare", "", {reference: reference.value.trim(), candidate: candidate.value.trim()}))},
      el("div", {class: "filters"}, el("label", {class: "field"}, "Reference: the run that is right", reference), el("label", {class: "field"}, "Yours: the run to judge", candidate)), el("button", {class: "primary", type: "submit"}, "Compare"), list), recent));
    read("runs/list", {limit: 500}).then(({runs}) => {
      list.append(...runs.map(r => el("option", {value: r.id}, r.name)));
      const take = (input, run) => button("Take", () => (input.value = run.id, (reference.value ? candidate : reference).focus()), {"aria-label": `${run.name || run.id} as the ${input.name}`});
      recent.replaceChildren(...(runs.length ? [make("h2", "Newest runs"), el("div", {class: "scroll"}, plainTable(["name", "recorded", "id", "reference", "yours"], runs.slice(0, 20).map(r => ({cells: [r.name || "–", timeText(r.created), r.id, take(reference, r), take(candidate, r)]}))))] : [emptyBox("No run was recorded yet.", "lockstep record -- python your_script.py")]));
    }, () => {});
    viewKeys([]);
  }
  address() {}
}

class CompareView {
  constructor(box, question, address) {
    this.question = question, this.wanted = address.params.row, this.window = address.params.window || "", this.chosen = null;
    this.filter = el("input", {type: "search", placeholder: "part of a name, or a glob", "aria-label": "filter tensors", value: address.params.filter || "", oninput: () => this.refresh()});
    this.onlyBad = el("input", {type: "checkbox", checked: !!address.params.different, oninput: () => this.refresh()}), this.count = make("span", "", "dim");
    this.head = el("div", {}), this.table = el("ls-table", {label: "tensors by module", tree: true});
    this.right = el("div", {class: "right"}, make("div", "Comparing …", "dim"));
    box.append(el("div", {class: "columns"}, el("div", {class: "left"}, el("div", {class: "head"}, this.head, el("div", {class: "filters"}, this.filter, el("label", {class: "dim"}, this.onlyBad, " different"), this.count)), this.table), this.right));
    const leaf = id => typeof id === "number" && id < this.rows.length;
    this.table.columns = [
      {title: "tensor", width: "minmax(160px, 2fr)", fill: (cell, id) => this.tree.cell(cell, id, this.label(id), this.colour(id))},
      {title: "error", width: "106px", cls: "number", text: id => leaf(id) ? short(this.rows.at(id)[ERROR]) : typeof id === "string" ? this.sums(id).words : ""},
      {title: "limit", width: "84px", cls: "number", text: id => leaf(id) ? short(this.rows.limit(id)) : ""}, {title: "state", width: "96px", cls: "state", text: id => leaf(id) ? this.rows.at(id)[STATE] : typeof id === "number" ? this.alone[id - this.rows.length].words : ""}];
    this.table.rowClass = id => leaf(id) ? this.rows.at(id)[STATE] + (id === this.rows.first ? " first" : "") : typeof id === "number" ? "layout" : "";
    this.table.decorate = (element, id) => typeof id === "string" ? element.setAttribute("aria-expanded", this.tree.open.has(id)) : element.removeAttribute("aria-expanded");
    this.table.addEventListener("choose", e => typeof e.detail === "string" ? this.fold(e.detail) : leaf(e.detail) && this.choose(e.detail));
    this.table.addEventListener("fold", e => typeof e.detail[0] === "string" && this.fold(...e.detail));
    this.load();
  }
  close() { this.closed = true, this.pictures?.close(); }
  address(now) {
    const row = Number(now.params.row);
    if (now.params.row && row !== this.chosen && row < (this.rows?.length || 0)) this.choose(row, true);
  }
  async load() {
    const head = el("div", {class: "crumbs"}, el("a", {href: linkTo("compare")}, "Compare"), "/", make("span", `${this.question.reference} and ${this.question.candidate}`));
    this.head.replaceChildren(head);
    try {
      this.answer = await read("compare/rows", {...this.question, limit: 100000});
    } catch (error) {
      return this.right.replaceChildren(failureCard(error, () => this.load()), el("a", {href: linkTo("compare")}, "Choose two runs"));
    }
    if (this.closed) return;
    const a = this.answer, S = a.summary;
    this.rows = new Rows(a.rows, a.factor, a.first);
    this.alone = [["reference", "only reference"], ["candidate", "only yours"]].flatMap(([side, words]) => a.alone[side].map(r => ({name: r[NAME], row: r, words})));
    this.tree = new ModuleTree(this.rows.length + this.alone.length, i => i < this.rows.length ? this.rows.at(i)[NAME] : this.alone[i - this.rows.length].name);
    this.known = new Map();
    const bad = a.rows.filter(isBad).length;
    this.head.replaceChildren(head, el("h1", {class: `title ${S.verdict === "match" ? "good" : "bad"}`, id: "verdict"}, verdictWords(S.verdict)),
      make("div", `${S.compared} compared, ${bad} differ${this.alone.length ? `, ${this.alone.length} without a partner` : ""}`, "dim"));
    this.build(S), this.refresh(), this.keys();
    const wanted = Number(this.wanted);
    if (this.rows.length) this.choose(this.wanted && wanted < this.rows.length ? wanted : this.rows.first ?? this.rows.worst(), true);
  }
  build(S) {
    const curve = this.curve = el("ls-curve", {}), grid = this.grid = el("ls-step-grid", {}), parts = [];
    const first = S.first_divergence, part = (title, ...children) => parts.push(make("h2", title), ...children);
    if (S.nothing_compared) parts.push(el("div", {class: "card"}, `Nothing was compared: expected ${S.nothing_compared.expected}, got ${S.nothing_compared.got}. Try ${S.nothing_compared.hint}.`));
    if (first) {
      const jump = button("Show it", () => this.choose(this.rows.first, true));
      parts.push(el("div", {class: "filters"}, make("h2", "First divergence"), jump), divergenceCard(first));
      part("Cause", ...causeCards(S.causes));
      parts.push(new ZoomPart(this).box, new FinerRecord(this, first).box);
    }
    part("Tensor"), this.pair = new PairView(this, this.window), parts.push(this.pair.box);
    part("Error over the stages", curve, make("div", S.growth.words, "dim"));
    this.gridHead = make("h2", "Error over stages and steps"), parts.push(this.gridHead, grid);
    const rest = el("div", {});
    parts.push(rest);
    if (S.notes.length) part("Notes", ...noteCards(S.notes));
    this.right.replaceChildren(...parts);
    afterPaint(() => this.closed || this.buildRest(rest));
  }
  // What lies below what one sees first.
  buildRest(box) {
    for (const each of [this.curve, this.grid]) {
      each.rows = this.rows, each.addEventListener("choose", e => this.choose(e.detail, true));
      if (this.chosen !== null) each.choose(this.chosen);
    }
    this.grid.hidden = this.gridHead.hidden = !this.grid.useful;
    this.pictures = new ComparedPictures(this);
    box.append(this.pictures.box, new LedgerPart(this).box, new MapEditor(this).box);
  }
  keys() {
    const to = i => () => this.rows.length && this.choose(Math.max(0, Math.min(this.rows.length - 1, i())), true);
    viewKeys([{keys: "j", words: "next tensor", run: to(() => this.chosen + 1)}, {keys: "k", words: "previous tensor", run: to(() => this.chosen - 1)}, {keys: "n", words: "next divergence", run: to(() => this.rows.nextBad(this.chosen, 1))},
      {keys: "N", words: "last divergence", run: to(() => this.rows.nextBad(this.chosen, -1))}, {keys: "[", words: "the same tensor a step earlier", run: to(() => this.rows.otherStep(this.chosen, -1))}, {keys: "]", words: "a step later", run: to(() => this.rows.otherStep(this.chosen, 1))},
      {keys: "f", words: "first divergence", run: to(() => this.rows.first ?? this.chosen)}],
      () => this.rows.list.slice(0, 20000).map((r, i) => ({words: titleOf(r), kind: r[STATE], run: () => this.choose(i, true)})));
  }
  label(id) {
    if (typeof id === "string") return this.tree.byPath.get(id).label;
    const r = id < this.rows.length ? this.rows.at(id) : this.alone[id - this.rows.length].row, name = this.flat ? r[NAME] : r[NAME].split(".").at(-1);
    return (r[ROLE] === "input" ? "→ " : "") + name + (r[STEP] < 0 ? "" : ` · ${r[STEP]}`) + (r[PASS] ? ` · ${r[PASS]}` : "") + (r[HIT] ? ` · hit ${r[HIT]}` : "");
  }
  // Of a module: how many differ, and the worst of them.
  sums(path) {
    if (this.known.has(path)) return this.known.get(path);
    let bad = 0, over = 0, alone = 0;
    for (const i of this.tree.leavesOf(path)) {
      if (i >= this.rows.length) { ++alone; continue; }
      bad += this.rows.bad(i), over = Math.max(over, this.rows.over(i));
    }
    const told = {bad, over, alone, words: bad ? `${bad} differ` : alone ? `${alone} alone` : ""};
    this.known.set(path, told);
    return told;
  }
  // From green below the limit to red at ten thousand times it.
  colour(id) {
    if (typeof id === "number" && id >= this.rows.length) return "var(--mark)";
    const bad = typeof id === "string" ? this.sums(id).bad > 0 : this.rows.bad(id), over = typeof id === "string" ? this.sums(id).over : this.rows.over(id);
    const share = bad ? Math.round(45 + 55 * Math.min(1, Math.log10(Math.max(1, isFinite(over) ? over : 1e4)) / 4)) : 40;
    return `color-mix(in srgb, var(${bad ? "--bad" : "--good"}) ${share}%, transparent)`;
  }
  refresh() {
    if (!this.tree) return;  // typed before the answer came
    const words = this.filter.value.trim(), named = matcher(words), all = this.rows.length + this.alone.length;
    patch({filter: words, different: this.onlyBad.checked ? 1 : ""});
    this.flat = words !== "" || this.onlyBad.checked;
    const name = i => i < this.rows.length ? this.rows.at(i)[NAME] : this.alone[i - this.rows.length].name;
    const ids = this.flat ? Array.from({length: all}, (_, i) => i).filter(i => named(name(i)) && (!this.onlyBad.checked || i >= this.rows.length || this.rows.bad(i))) : this.tree.visible();
    this.tree.level = this.flat ? () => 0 : ModuleTree.prototype.level;
    this.count.textContent = `${this.flat ? ids.length + " of " : ""}${all}`;
    this.table.show(ids);
  }
  fold(path, open) { this.tree.toggle(path, open), this.table.chosen = path, this.refresh(); }
  choose(i, reveal) {
    this.chosen = i;
    if (reveal && !this.flat) this.tree.reveal(i), this.refresh();
    this.table.choose(i, true), patch({row: i, window: this.pair.wanted});
    this.curve.choose(i), this.grid.choose(i), this.pair.show(i);
  }
}
