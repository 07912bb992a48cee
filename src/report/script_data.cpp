#include "report/page.h"

namespace lockstep::page {

const char* const kScriptData = R"JS(
const D = JSON.parse(document.getElementById("data").textContent), S = D.summary, ROWS = D.rows;
// Columns of a row.
const NAME = 0, ROLE = 1, STEP = 2, HIT = 3, PASS = 4, STATE = 5, ERROR = 6, FLOOR = 7, LARGEST = 8, COSINE = 9,
      SHAPE = 10, DTYPE = 11, NOTE = 12;
const $ = id => document.getElementById(id);
// Strict JSON has no infinities: they travel as words.
const num = v => typeof v === "number" ? v : v === "Infinity" ? Infinity : v === "-Infinity" ? -Infinity : NaN;
const make = (tag, text, cls) => {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};
const short = v => {
  const x = num(v);
  return !isFinite(x) ? String(v) : x === 0 ? "0" : Math.abs(x) >= .01 && Math.abs(x) < 1e4 ? x.toPrecision(4) : x.toExponential(2);
};
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isBad = r => r[STATE] === "mismatch" || r[STATE] === "incomparable";
const limitOf = r => D.factor * num(r[FLOOR]);
const title = r => (r[ROLE] === "input" ? "→ " : "") + r[NAME] + (r[STEP] < 0 ? "" : ` · step ${r[STEP]}`) +
    (r[PASS] ? ` · ${r[PASS]}` : "") + (r[HIT] ? ` · hit ${r[HIT]}` : "");
const distinct = column => [...new Set(ROWS.map(r => r[column]))];
const fill = (box, all, values, words = v => v) => {
  box.append(new Option(all, ""));
  for (const v of values) box.append(new Option(words(v), v));
  box.hidden = values.length < 2;
};
const stepWords = s => s < 0 ? "outside the loop" : `step ${s}`;
const steps = distinct(STEP).sort((a, b) => a - b);
// A canvas as sharp as the screen; returns its context in CSS pixels.
function prepared(canvas) {
  const ratio = devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  canvas.width = w * ratio, canvas.height = h * ratio;
  const g = canvas.getContext("2d");
  g.scale(ratio, ratio);
  g.font = "11px system-ui, sans-serif";
  return [g, w, h];
}
const tip = (event, text) => {
  const t = $("tip");
  t.style.display = text ? "block" : "none";
  if (!text) return;
  t.textContent = text;
  t.style.left = Math.max(0, Math.min(innerWidth - t.offsetWidth - 8, event.clientX + 12)) + "px";
  t.style.top = Math.min(innerHeight - t.offsetHeight - 8, event.clientY + 14) + "px";
};
let chosen = null;  // the row whose tensor is shown
function choose(i, scroll) {
  if (!ROWS.length) return;
  chosen = Math.max(0, Math.min(ROWS.length - 1, i));
  showTensor(), drawCurve(), drawGrid(), scroll ? reveal(chosen) : renderTable();
}
)JS";

}  // namespace lockstep::page
