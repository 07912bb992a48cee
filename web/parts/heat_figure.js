// A heat map with its scale and the values under the pointer. The last axis lies across, all others down.
import {el, make, tip} from "../base/dom.js";
import {num, short} from "../base/numbers.js";
import {paintCells} from "./canvas.js";

// Which rows or columns of the tensor a cell stands for.
export function cellSpan(k, cells, from, all) {
  const first = from + Math.ceil(k * all / cells), last = from + Math.ceil((k + 1) * all / cells) - 1;
  return last > first ? `${first}–${last}` : String(first);
}

export function cellWords(map, x, y) {
  const value = map.cells[y * map.width + x];
  if (value === undefined) return "";
  const whole = map.window_rows === undefined, down = whole ? map.rows : map.window_rows, across = whole ? map.columns : map.window_columns;
  const exact = map.exact !== false && down <= map.height && across <= map.width;
  return `row ${cellSpan(y, map.height, map.top || 0, down)}, column ${cellSpan(x, map.width, map.left || 0, across)}: ` +
      (isFinite(value) ? `${map.exact === false ? "about " : exact ? "" : "farthest from 0: "}${short(value)}` : "not finite");
}

export function scaleCaption(words, limit, notFinite) {
  const caption = make("figcaption", words);
  caption.append(make("br"), short(-num(limit)), make("span", undefined, "scale"), short(limit));
  if (notFinite) caption.append(", pink: not finite");
  return caption;
}

export const sizeWords = m => `${m.rows} × ${m.columns}${m.rows > m.height || m.columns > m.width ? `, in ${m.height} × ${m.width} cells` : ""}`;

export function heatFigure(map, words) {
  const canvas = el("canvas", {class: "map", role: "img", "aria-label": `heat map of ${words}`});
  paintCells(canvas, map.cells, map.width, map.height, num(map.limit));
  let odd = false;
  for (let i = 0; i < map.cells.length && !odd; ++i) odd = !isFinite(map.cells[i]);
  const at = e => {
    const box = canvas.getBoundingClientRect();
    return [Math.floor((e.clientX - box.left) / box.width * map.width), Math.floor((e.clientY - box.top) / box.height * map.height)];
  };
  canvas.addEventListener("mousemove", e => tip(e, cellWords(map, ...at(e))));
  canvas.addEventListener("mouseleave", e => tip(e));
  return el("figure", {}, canvas, scaleCaption(words, map.limit, odd));
}
