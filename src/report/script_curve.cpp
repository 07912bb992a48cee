#include "report/page.h"

namespace lockstep::page {

const char* const kScriptCurve = R"JS(
// Error over the stages. `shown` are the rows on the curve, `view` the part of them in sight.
let view = [0, 1], shown = [], axis = [-9, 1];
fill($("curve-step"), "all steps", steps, stepWords);
fill($("curve-role"), "inputs and outputs", distinct(ROLE));
const LEFT = 54, RIGHT = 10, TOP = 8;
function pickRows() {
  const step = $("curve-step").value, role = $("curve-role").value;
  shown = [];
  ROWS.forEach((r, i) => {
    if ((!step || String(r[STEP]) === step) && (!role || r[ROLE] === role) && r[STATE] !== "unread") shown.push(i);
  });
  view = [0, Math.max(1, shown.length)];
  let low = 0, high = -12;
  for (const i of shown) for (const v of [num(ROWS[i][ERROR]), limitOf(ROWS[i])])
    if (v > 0 && isFinite(v)) low = Math.min(low, Math.floor(Math.log10(v))), high = Math.max(high, Math.ceil(Math.log10(v)));
  axis = high > low ? [Math.max(-12, low - 1), Math.min(12, high)] : [-9, 1];
}
const group = r => r[NAME].split(".")[0];
function drawCurve() {
  const [g, w, h] = prepared($("plot")), [lo, hi] = axis, span = view[1] - view[0], named = span <= 36;
  const bottom = h - (named ? 118 : 22), X = k => LEFT + (k + .5 - view[0]) / span * (w - LEFT - RIGHT);
  const Y = v => TOP + (hi - Math.max(lo, Math.min(hi, v > 0 ? Math.log10(v) : lo))) / (hi - lo) * (bottom - TOP);
  const a = Math.max(0, Math.floor(view[0])), b = Math.min(shown.length, Math.ceil(view[1]));
  // Bands behind the parts of the model: text encoder, transformer, ...
  for (let k = a, at = 0; k < b;) {
    let end = k + 1;
    const name = group(ROWS[shown[k]]);
    while (end < b && group(ROWS[shown[end]]) === name) ++end;
    const x = Math.max(LEFT, X(k - .5)), x2 = Math.min(w - RIGHT, X(end - .5));
    if (at++ % 2) g.fillStyle = css("--band"), g.fillRect(x, TOP, x2 - x, bottom - TOP);
    if (x2 - x > 60) g.fillStyle = css("--dim"), g.fillText(name, x + 5, TOP + 12, x2 - x - 8);
    k = end;
  }
  g.strokeStyle = css("--line"), g.fillStyle = css("--dim");
  const every = Math.max(1, Math.ceil((hi - lo) / 8));
  for (let e = Math.ceil(lo / every) * every; e <= hi; e += every) {
    const y = Y(10 ** e);
    g.beginPath(), g.moveTo(LEFT, y), g.lineTo(w - RIGHT, y), g.stroke();
    g.fillText(e === lo ? "0" : `1e${e}`, 8, y + 4);
  }
  g.save(), g.beginPath(), g.rect(LEFT, 0, w - LEFT - RIGHT, h), g.clip();  // half a stage at either end
  g.strokeStyle = css("--dim"), g.setLineDash([3, 3]), g.beginPath();
  for (let k = a; k < b; ++k) g.lineTo(X(k), Y(limitOf(ROWS[shown[k]])));
  g.stroke(), g.setLineDash([]);
  const size = Math.max(1.6, Math.min(5, (w - LEFT) / span / 3)), bad = css("--bad"), good = css("--ref");
  for (const pass of [false, true])  // the bad ones on top
    for (let k = a; k < b; ++k) {
      const r = ROWS[shown[k]], error = num(r[ERROR]);
      if (isBad(r) !== pass) continue;
      g.fillStyle = pass ? bad : good;
      g.beginPath(), g.arc(X(k), Y(isNaN(error) ? Infinity : error), size, 0, 7), g.fill();
    }
  g.restore();
  const line = (k, colour, text, y) => {
    if (k < a || k >= b) return;
    g.strokeStyle = g.fillStyle = colour;
    g.beginPath(), g.moveTo(X(k), TOP), g.lineTo(X(k), bottom), g.stroke();
    if (text) g.fillText(text, Math.min(X(k) + 4, w - 90), y);
  };
  line(shown.indexOf(chosen), css("--mark"));
  line(shown.indexOf(D.first), bad, "first divergence", TOP + 26);
  g.fillStyle = css("--dim");
  if (named)
    for (let k = a; k < b; ++k) {
      g.save(), g.translate(X(k) + 4, bottom + 8), g.rotate(.9);
      const text = ROWS[shown[k]][NAME];
      g.fillText((ROWS[shown[k]][ROLE] === "input" ? "→ " : "") + (text.length > 21 ? "…" + text.slice(-20) : text), 0, 0);
      g.restore();
    }
  else
    g.fillText(`stages ${a + 1} to ${b} of ${shown.length} in execution order; dashed: the limit`, LEFT, h - 7);
}
const stageAt = e => {
  const box = $("plot").getBoundingClientRect();
  return view[0] + (e.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT) * (view[1] - view[0]);
};
function setView(a, b) {
  const n = Math.max(1, shown.length), span = Math.min(n, Math.max(Math.min(8, n), b - a));
  a = Math.max(0, Math.min(n - span, a));
  view = [a, a + span];
  drawCurve();
}
const zoom = (x, factor) => setView(x - (x - view[0]) * factor, x + (view[1] - x) * factor);
{
  const plot = $("plot");
  let drag = null, moved = false;
  plot.addEventListener("wheel", e => (e.preventDefault(), zoom(stageAt(e), e.deltaY > 0 ? 1.25 : .8)), {passive: false});
  plot.addEventListener("pointerdown", e => (drag = [stageAt(e), e.clientX], moved = false));
  addEventListener("pointermove", e => {
    if (!drag) return;
    if (Math.abs(e.clientX - drag[1]) > 3) moved = true;
    if (moved) setView(view[0] + drag[0] - stageAt(e), view[1] + drag[0] - stageAt(e));
  });
  addEventListener("pointerup", e => {
    const row = shown[Math.floor(stageAt(e))];
    if (drag && !moved && row !== undefined) choose(row, true);
    drag = null;
  });
  plot.addEventListener("mousemove", e => {
    const r = ROWS[shown[Math.floor(stageAt(e))]];
    tip(e, r && `${title(r)}: ${short(r[ERROR])}, limit ${short(limitOf(r))}`);
  });
  plot.addEventListener("mouseleave", e => tip(e));
  plot.addEventListener("dblclick", () => (pickRows(), drawCurve()));
  const middle = () => {  // of the view, or the chosen stage where it is in sight
    const k = shown.indexOf(chosen);
    return k >= view[0] && k < view[1] ? k + .5 : (view[0] + view[1]) / 2;
  };
  $("zoom-in").onclick = () => zoom(middle(), .5);
  $("zoom-out").onclick = () => zoom(middle(), 2);
  for (const id of ["curve-step", "curve-role"]) $(id).onchange = () => (pickRows(), drawCurve());
  $("reset").onclick = () => (pickRows(), drawCurve());
}
)JS";

}  // namespace lockstep::page
