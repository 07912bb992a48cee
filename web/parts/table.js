// <ls-table>: a table of any length. Only the rows in view exist, and they are used again as the table moves.
import {el, make} from "../base/dom.js";

const HEIGHT = 26;
let tables = 0;

export class LongTable extends HTMLElement {
  connectedCallback() {
    if (this.scroller) return;
    this.ids = this.ids || [], this.pool = new Map(), this.columns_ = this.columns_ || [], this.number = ++tables;
    this.head = el("div", {class: "thead", role: "row"});
    this.body = el("div", {class: "tbody", role: "rowgroup"});
    this.scroller = el("div", {class: "scroll", tabindex: 0, role: this.hasAttribute("tree") ? "treegrid" : "grid", "aria-label": this.getAttribute("label") || "table"}, this.head, this.body);
    this.append(this.scroller);
    this.scroller.addEventListener("scroll", () => this.render(), {passive: true});
    this.scroller.addEventListener("keydown", e => e.target.closest("button") || this.key(e));
    this.body.addEventListener("click", e => {
      const row = e.target.closest("[data-k]");
      if (row) this.tell(this.ids[Number(row.dataset.k)], e);
    });
    this.body.addEventListener("dblclick", e => e.target.closest("[data-k]") && this.dispatchEvent(new CustomEvent("open", {detail: this.chosen})));
    new ResizeObserver(() => this.render()).observe(this.scroller);
  }
  // {title, width, cls, text(id), fill(cell, id), sort}: `fill` in place of `text` where a cell is more than words.
  set columns(columns) {
    this.columns_ = columns;
    const widths = columns.map(c => c.width || "minmax(60px, 1fr)");
    this.style.setProperty("--columns", widths.join(" "));
    // Every row is as wide as the columns need at least, so that they stand below each other.
    this.style.setProperty("--least", widths.reduce((sum, w) => sum + Number(w.match(/(\d+)px/)?.[1] || 0), 0) + "px");
    this.head.replaceChildren(...columns.map((c, k) => {
      const sort = () => this.dispatchEvent(new CustomEvent("sort", {detail: k}));
      return el("div", {class: `th ${c.cls || ""}`, role: "columnheader", title: c.help}, c.sort ? el("button", {type: "button", onclick: sort}, c.title) : c.title);
    }));
    this.pool.forEach(row => row.remove()), this.pool.clear();
  }
  mark(k, down) {
    [...this.head.children].forEach((th, i) => th.setAttribute("aria-sort", i !== k ? "none" : down ? "descending" : "ascending"));
  }
  show(ids) {
    this.ids = ids;
    this.scroller.setAttribute("aria-rowcount", ids.length);
    this.body.style.height = ids.length * HEIGHT + "px";
    this.refresh();
  }
  refresh() {
    this.pool.forEach(row => row.dataset.k = "");
    this.render();
  }
  choose(id, reveal) {
    this.chosen = id;
    if (reveal) this.reveal(id);
    this.refresh();
  }
  reveal(id) {
    const k = this.ids.indexOf(id), s = this.scroller, room = s.clientHeight - HEIGHT;
    if (k < 0) return false;
    if (k * HEIGHT < s.scrollTop || (k + 1) * HEIGHT > s.scrollTop + room) s.scrollTop = Math.max(0, k * HEIGHT - room / 3);
    return true;
  }
  render() {
    const s = this.scroller, from = Math.max(0, Math.floor(s.scrollTop / HEIGHT) - 4);
    const to = Math.min(this.ids.length, Math.ceil((s.scrollTop + s.clientHeight) / HEIGHT) + 4), free = [];
    this.pool.forEach((row, k) => {
      if (k < from || k >= to) this.pool.delete(k), free.push(row);
    });
    for (let k = from; k < to; ++k) {
      let row = this.pool.get(k);
      if (!row) this.pool.set(k, row = free.pop() || this.fresh()), row.dataset.k = "";
      if (row.dataset.k === "") this.fill(row, k);
    }
    free.forEach(row => row.remove());
    const k = this.ids.indexOf(this.chosen);
    if (this.pool.has(k)) s.setAttribute("aria-activedescendant", this.pool.get(k).id);
    else s.removeAttribute("aria-activedescendant");
  }
  fresh() {
    const row = el("div", {class: "tr", role: "row"});
    row.append(...this.columns_.map(c => el("div", {class: `td ${c.cls || ""}`, role: "gridcell"})));
    this.body.append(row);
    return row;
  }
  fill(row, k) {
    const id = this.ids[k];
    row.dataset.k = k, row.id = `t${this.number}-${k}`;
    row.style.transform = `translateY(${k * HEIGHT}px)`;
    row.className = `tr ${this.rowClass ? this.rowClass(id) : ""}${id === this.chosen ? " chosen" : ""}`;
    row.setAttribute("aria-rowindex", k + 1), row.setAttribute("aria-selected", id === this.chosen);
    this.columns_.forEach((c, i) => {
      const cell = row.children[i];
      if (c.fill) cell.replaceChildren(), c.fill(cell, id);
      else cell.textContent = cell.title = c.text(id);
    });
    if (this.decorate) this.decorate(row, id);
  }
  move(by) {
    if (!this.ids.length) return;
    const k = this.ids.indexOf(this.chosen), to = k < 0 ? 0 : Math.max(0, Math.min(this.ids.length - 1, k + by));
    this.tell(this.ids[to]), this.reveal(this.ids[to]);
  }
  key(e) {
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / HEIGHT) - 2);
    const by = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9}[e.key];
    if (by) e.preventDefault(), this.move(by);
    else if (e.key === "Enter") this.dispatchEvent(new CustomEvent("open", {detail: this.chosen}));
    else if (e.key === "ArrowLeft" || e.key === "ArrowRight") this.dispatchEvent(new CustomEvent("fold", {detail: [this.chosen, e.key === "ArrowRight"]}));
  }
  tell(id, event) { this.dispatchEvent(new CustomEvent("choose", {detail: id, bubbles: false})), event; }
}
customElements.define("ls-table", LongTable);

// A short table of words, all of it there.
export function plainTable(columns, rows, cls) {
  const table = make("table", undefined, cls), head = make("tr");
  for (const c of columns) head.append(make("th", c.replace(/^#/, ""), c.startsWith("#") ? "number" : ""));
  table.append(el("thead", {}, head));
  const body = make("tbody");
  for (const row of rows) {
    const tr = make("tr", undefined, row.cls);
    row.cells.forEach((cell, k) => {
      const td = make("td", undefined, columns[k].startsWith("#") ? "number" : "");
      td.append(cell ?? "");
      tr.append(td);
    });
    if (row.onclick) tr.classList.add("clicks"), tr.addEventListener("click", row.onclick);
    body.append(tr);
  }
  table.append(body);
  return table;
}
