// Runs: the list of them, and one with its tensors.
import {go, patch} from "../base/address.js";
import {read} from "../base/api.js";
import {button, el, make} from "../base/dom.js";
import {viewKeys} from "../base/keys.js";
import {bytesText, matcher, timeText} from "../base/numbers.js";
import {emptyBox, failureCard} from "../parts/failure.js";
import "../parts/table.js";

const FIRST = 100, MOST = 10000;  // what one sees at once comes first

export function open(box, address) {
  let inner = null, shown = null;
  const show = async now => {
    if (now.id === shown) return inner?.address?.(now);
    inner?.close?.(), shown = now.id, inner = null;
    box.replaceChildren();
    if (!now.id) return void (inner = new RunList(box, now));
    const {RunView} = await import("./run.js");
    if (shown === now.id && !inner) inner = new RunView(box, now);  // back and forward may have shown it meanwhile
  };
  show(address);
  return {address: show, close: () => inner?.close?.(), again: () => inner?.load?.()};
}

class RunList {
  constructor(box, address) {
    this.runs = [], this.total = 0, this.reference = address.params.reference || "";
    this.filter = el("input", {type: "search", placeholder: "filter by name, id or status", "aria-label": "filter runs", value: address.params.filter || "", oninput: () => this.refresh()});
    this.count = make("span", "", "dim"), this.bar = el("span", {class: "filters"}), this.problem = el("div", {});
    this.table = el("ls-table", {label: "runs", class: "fills"});
    const page = el("div", {class: "columns lone"}, el("div", {class: "left"}, el("div", {class: "head"}, make("h1", "Runs", "title"), el("div", {class: "filters"}, this.filter, this.count), this.bar), this.problem, this.table));
    box.append(page);
    const of = i => this.runs[i];
    this.table.columns = [
      {title: "name", width: "minmax(150px, 1.4fr)", text: i => of(i).name || "–", sort: true}, {title: "status", width: "86px", cls: "status", text: i => of(i).archived ? "archived" : of(i).status, sort: true},
      {title: "recorded", width: "140px", text: i => timeText(of(i).created), sort: true}, {title: "size", width: "84px", cls: "number", text: i => bytesText(of(i).bytes), sort: true},
      {title: "id", width: "minmax(190px, 1fr)", text: i => of(i).id, sort: true}];
    this.table.rowClass = i => `${of(i).status}${of(i).id === this.reference ? " first" : ""}`;
    this.sortBy(address.params.sort);
    this.table.addEventListener("sort", e => (this.sortBy(`${e.detail}${(this.sort?.column === e.detail ? !this.sort.down : e.detail > 1) ? "-" : ""}`), this.refresh()));
    this.table.addEventListener("choose", e => this.choose(e.detail));
    this.table.addEventListener("open", e => e.detail !== undefined && go("runs", of(e.detail).id));
    viewKeys([{keys: "j", words: "next run", run: () => this.table.move(1)}, {keys: "k", words: "previous run", run: () => this.table.move(-1)}, {keys: "Enter", words: "open the run", run: () => this.chosen && go("runs", this.chosen.id)},
      {keys: "m", words: "mark the run as the reference of a comparison", run: () => this.mark()}, {keys: "c", words: "compare the marked run with this one", run: () => this.compare()}],
      () => this.runs.map(r => ({words: `${r.name || r.id} · ${r.id}`, kind: "run", run: () => go("runs", r.id)})));
    this.load(), this.timer = setInterval(() => document.hidden || this.load(), 5000);
  }
  close() { this.closed = true, clearInterval(this.timer); }
  address(now) {
    this.filter.value = now.params.filter || "", this.reference = now.params.reference || "", this.sortBy(now.params.sort);
    this.refresh(), this.choose(this.table.chosen);
  }
  // "3-": by the fourth column, the largest first.
  sortBy(text) {
    const found = (text || "").match(/^([0-4])(-?)$/);
    this.sort = found && {column: Number(found[1]), down: found[2] === "-"};
    if (found) this.table.mark(this.sort.column, this.sort.down);
  }
  get chosen() { return this.table.chosen === undefined ? null : this.runs[this.table.chosen]; }
  async load() {
    try {
      const some = await read("runs/list", {limit: this.runs.length ? MOST : FIRST});
      this.take(some);
      if (some.next_from && !this.closed) this.take(await read("runs/list", {limit: MOST}));
    } catch (error) { this.problem.replaceChildren(failureCard(error, () => this.load())); }
  }
  take({runs, total}) {
    const was = this.chosen?.id, text = JSON.stringify(runs);
    if (this.closed) return;
    this.problem.replaceChildren(...(runs.length ? [] : [emptyBox("No run was recorded yet.", "lockstep record -- python your_script.py\nlockstep --debug generate --prompt \"three green stars\"")]));
    this.table.hidden = this.bar.hidden = !runs.length;
    if (text === this.text) return;
    this.text = text, this.runs = runs, this.total = total;
    this.table.chosen = was === undefined ? undefined : runs.findIndex(r => r.id === was);
    if (this.table.chosen < 0) this.table.chosen = undefined;
    this.refresh(), this.choose(this.table.chosen);
  }
  refresh() {
    const named = matcher(this.filter.value.trim()), ids = [];
    patch({filter: this.filter.value.trim(), sort: this.sort ? `${this.sort.column}${this.sort.down ? "-" : ""}` : ""});
    this.runs.forEach((r, i) => named(`${r.name} ${r.id} ${r.status}`) && ids.push(i));
    if (this.sort) {
      const key = [r => r.name, r => r.status, r => r.created, r => r.bytes, r => r.id][this.sort.column];
      ids.sort((a, b) => (key(this.runs[a]) < key(this.runs[b]) ? -1 : key(this.runs[a]) > key(this.runs[b]) ? 1 : 0) * (this.sort.down ? -1 : 1));
    }
    this.count.textContent = `${ids.length} of ${this.total}`;
    this.table.show(ids);
  }
  choose(i) {
    if (i !== undefined) this.table.choose(i);
    const run = this.chosen;
    const marked = this.runs.find(r => r.id === this.reference);
    this.bar.replaceChildren(...(run ? [button("Open", () => go("runs", run.id), {class: "primary"}), button("Mark as reference", () => this.mark()),
      button(marked ? `Compare with ${marked.name || marked.id}` : "Compare", () => this.compare(), {disabled: !marked || marked.id === run.id})] : [make("span", "choose a run; Enter opens it", "dim")]));
  }
  mark() {
    if (!this.chosen) return;
    this.reference = this.chosen.id, patch({reference: this.reference});
    this.table.refresh(), this.choose(this.table.chosen);
  }
  compare() {
    if (this.chosen && this.reference && this.chosen.id !== this.reference) go("compare", "", {reference: this.reference, candidate: this.chosen.id});
  }
}
