// <ls-heat>: a tensor of any size as a heat map that pans and zooms. The service makes the cells of what is in sight;
// what was there before stays, moved and stretched, until the new cells come.
import {button, el, make} from "../base/dom.js";
import {num, sampleWords, short} from "../base/numbers.js";
import {paintCells} from "./canvas.js";
import {cellWords, scaleCaption} from "./heat_figure.js";

const CELLS = 384;  // most along one side

export class HeatView extends HTMLElement {
  connectedCallback() {
    if (this.frame) return;
    this.canvas = el("canvas", {}), this.value = make("div", "", "value");
    this.value.hidden = true;
    this.frame = el("div", {class: "frame", tabindex: 0, role: "img", "aria-label": "heat map; arrows move, plus and minus zoom, 0 shows all"}, this.canvas, this.value);
    this.caption = make("figcaption", "");
    this.append(this.frame, el("div", {class: "filters"}, button("−", () => this.zoom(2), {"aria-label": "zoom out"}), button("+", () => this.zoom(.5), {"aria-label": "zoom in"}),
      button("All", () => this.whole(), {}), this.caption));
    this.listen();
  }
  // source(window, cells, signal): a promise of {rows, columns, top, left, window_rows, window_columns, height, width, limit, sampled, looked_at, cells}.
  // `limit`: of the colours, where several maps share it; else the map's own.
  async show(source, window, limit = null) {
    this.source = source, this.limit = limit, this.map = null;
    await this.load(window || {}, true);
  }
  // Heat maps that lie side by side move together.
  follow(window) { return this.source && this.load(window, true); }
  async load(window, followed) {
    this.asked?.abort();
    const asked = this.asked = new AbortController();
    this.frame.classList.add("busy");
    try {
      const box = this.frame.getBoundingClientRect(), most = Math.max(64, Math.min(CELLS, Math.round(box.width) || CELLS));
      const map = await this.source(window, Math.min(CELLS, most), asked.signal);
      if (asked !== this.asked) return;
      this.map = map, this.window = {top: map.top, left: map.left, rows: map.window_rows, columns: map.window_columns};
      this.limit = this.limit ?? num(map.limit);
      paintCells(this.canvas, map.cells, map.width, map.height, this.limit);
      this.canvas.style.transform = "";
      const all = map.window_rows === map.rows && map.window_columns === map.columns;
      this.caption.replaceChildren(...scaleCaption(`${map.rows} × ${map.columns}${all ? "" : `, rows ${map.top}–${map.top + map.window_rows - 1}, columns ${map.left}–${map.left + map.window_columns - 1}`}${sampleWords(map)}`, this.limit).childNodes);
      if (!followed) this.dispatchEvent(new CustomEvent("moved", {detail: all ? {} : this.window}));
      this.dispatchEvent(new CustomEvent("shown"));
    } catch (error) {
      if (error.name !== "AbortError") this.caption.textContent = error.message;
    } finally {
      if (asked === this.asked) this.frame.classList.remove("busy");
    }
  }
  whole() { if (this.map) this.load({}); }
  // The window after a move by parts of itself and a zoom around a point in parts of it.
  to(dx, dy, factor = 1, x = .5, y = .5) {
    const m = this.map, w = this.window;
    if (!m) return;
    const rows = Math.max(Math.min(8, m.rows), Math.min(m.rows, Math.round(w.rows * factor))), columns = Math.max(Math.min(8, m.columns), Math.min(m.columns, Math.round(w.columns * factor)));
    const clamp = (v, most) => Math.max(0, Math.min(most, Math.round(v)));
    const top = clamp(w.top + dy * w.rows + y * (w.rows - rows), m.rows - rows), left = clamp(w.left + dx * w.columns + x * (w.columns - columns), m.columns - columns);
    if (top === w.top && left === w.left && rows === w.rows && columns === w.columns) return;
    this.canvas.style.transform = "";
    this.load({top, left, rows, columns});
  }
  zoom(factor, x, y) { this.to(0, 0, factor, x, y); }
  listen() {
    const frame = this.frame, part = e => {
      const box = frame.getBoundingClientRect();
      return [(e.clientX - box.left) / box.width, (e.clientY - box.top) / box.height];
    };
    frame.addEventListener("wheel", e => (e.preventDefault(), this.zoom(e.deltaY > 0 ? 1.6 : .625, ...part(e))), {passive: false});
    let drag = null;
    frame.addEventListener("pointerdown", e => (drag = [e.clientX, e.clientY], frame.setPointerCapture(e.pointerId)));
    frame.addEventListener("pointermove", e => {
      if (drag) this.canvas.style.transform = `translate(${e.clientX - drag[0]}px, ${e.clientY - drag[1]}px)`;
      const m = this.map, [x, y] = part(e);
      if (!m || drag) return;
      this.value.hidden = false, this.value.textContent = cellWords(m, Math.floor(x * m.width), Math.floor(y * m.height));
      this.dispatchEvent(new CustomEvent("point", {detail: [x, y]}));
    });
    frame.addEventListener("pointerleave", () => this.value.hidden = true);
    frame.addEventListener("pointerup", e => {
      if (!drag) return;
      const box = frame.getBoundingClientRect(), dx = (drag[0] - e.clientX) / box.width, dy = (drag[1] - e.clientY) / box.height;
      drag = null;
      if (Math.abs(dx) + Math.abs(dy) > .004) this.to(dx, dy);
      else this.canvas.style.transform = "";
    });
    frame.addEventListener("dblclick", e => this.zoom(.4, ...part(e)));
    frame.addEventListener("keydown", e => {
      const by = {ArrowLeft: [-.25, 0], ArrowRight: [.25, 0], ArrowUp: [0, -.25], ArrowDown: [0, .25]}[e.key];
      if (by) e.preventDefault(), this.to(...by);
      else if (e.key === "+" || e.key === "=") this.zoom(.5);
      else if (e.key === "-") this.zoom(2);
      else if (e.key === "0") this.whole();
    });
  }
  // What lies under a point that the pointer of another map has.
  point(x, y) {
    const m = this.map;
    if (!m) return;
    this.value.hidden = false, this.value.textContent = cellWords(m, Math.floor(x * m.width), Math.floor(y * m.height));
  }
}
customElements.define("ls-heat", HeatView);
