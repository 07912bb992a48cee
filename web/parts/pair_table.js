// Every pair of a comparison: filtered, sorted, chosen.
import {button, el, make, options} from "../base/dom.js";
import {matcher, num, short} from "../base/numbers.js";
import {COSINE, DTYPE, ERROR, FLOOR, LARGEST, NAME, NOTE, PASS, ROLE, SHAPE, STATE, STEP, stepWords} from "./rows.js";

const COLUMNS = [["state", STATE, "96px"], ["error", ERROR, "84px"], ["limit", FLOOR, "84px"], ["largest", LARGEST, "84px"], ["cosine", COSINE, "84px"], ["role", ROLE, "84px"],
                 ["step", STEP, "52px"], ["pass", PASS, "70px"], ["name", NAME, "minmax(240px, 2fr)"], ["shape", SHAPE, "minmax(90px, 1fr)"], ["dtype", DTYPE, "56px"], ["note", NOTE, "minmax(60px, 2fr)"]];

export class PairTable extends HTMLElement {
  connectedCallback() {
    if (this.table) return;
    this.order = [], this.sortBy = null, this.down = true;
    const again = () => this.refresh(), choice = (cls, label) => el("select", {class: cls, "aria-label": label, oninput: again});
    this.search = el("input", {class: "search", type: "search", placeholder: "part of a name, or a glob", "aria-label": "filter by name", size: 28, oninput: again});
    this.state = choice("state", "state"), this.roleBox = choice("role", "role"), this.step = choice("step", "denoising step"), this.pass = choice("pass", "pass");
    this.least = el("input", {class: "least", size: 7, placeholder: "1e-3", "aria-label": "error at least", oninput: again});
    this.count = make("span", "", "dim count");
    this.table = el("ls-table", {label: "all tensors"});
    this.append(el("div", {class: "filters"}, this.search, this.state, this.roleBox, this.step, this.pass,
      el("label", {class: "dim"}, "error at least ", this.least), button("Clear", () => this.clear(), {class: "clear"}), this.count), this.table);
    this.table.columns = COLUMNS.map(([title, column, width]) => ({title, width, sort: true, cls: (column >= ERROR && column <= COSINE ? "number " : "") + title,
      text: i => this.words(i, column)}));
    this.table.rowClass = i => this.all.at(i)[STATE] + (i === this.all.first ? " first" : "");
    this.table.addEventListener("sort", e => {
      const column = COLUMNS[e.detail][1];
      this.down = this.sortBy === column ? !this.down : true, this.sortBy = column, this.table.mark(e.detail, this.down), this.refresh();
    });
    this.table.addEventListener("choose", e => this.dispatchEvent(new CustomEvent("choose", {detail: e.detail, bubbles: true})));
  }
  words(i, column) {
    const r = this.all.at(i);
    if (column === FLOOR) return short(this.all.limit(i));
    if (column >= ERROR && column <= COSINE) return short(r[column]);
    return column === STEP ? (r[STEP] < 0 ? "" : String(r[STEP])) : String(r[column] ?? "");
  }
  set rows(rows) {
    this.all = rows;
    options(this.state, "every state", rows.distinct(STATE).sort()), options(this.roleBox, "every role", rows.distinct(ROLE).sort());
    options(this.step, "every step", rows.steps, stepWords), options(this.pass, "every pass", rows.distinct(PASS).filter(p => p).sort());
    this.refresh();
  }
  refresh() {
    const named = matcher(this.search.value.trim()), least = parseFloat(this.least.value), all = this.all;
    const wanted = [[STATE, this.state.value], [ROLE, this.roleBox.value], [STEP, this.step.value], [PASS, this.pass.value]];
    this.order = [];
    all.list.forEach((r, i) => {
      if (wanted.every(([column, value]) => value === "" || String(r[column]) === value) && named(r[NAME]) && (isNaN(least) || num(r[ERROR]) >= least)) this.order.push(i);
    });
    if (this.sortBy !== null) this.order.sort((a, b) => {
      const x = all.at(a)[this.sortBy], y = all.at(b)[this.sortBy], p = num(x), q = num(y);
      const c = isNaN(p) || isNaN(q) ? String(x).localeCompare(String(y), undefined, {numeric: true}) : p === q ? 0 : p - q;
      return this.down ? -c : c;
    });
    this.count.textContent = `${this.order.length} of ${all.length}`;
    this.table.scroller.scrollTop = 0, this.table.show(this.order);
  }
  clear() {
    for (const box of [this.search, this.state, this.roleBox, this.step, this.pass, this.least]) box.value = "";
    this.sortBy = null, this.table.mark(-1), this.refresh();
  }
  // Brings a row into view, in spite of the filters where it must be.
  choose(i) {
    if (!this.order.includes(i)) this.clear();
    this.table.choose(i, true);
  }
}
customElements.define("ls-pair-table", PairTable);
