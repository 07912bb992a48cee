#include "report/page.h"

namespace lockstep::page {

const char* const kScriptSteps = R"JS(
// Error over stages and steps: a row for each stage of the loop, a column for each step.
const loop = steps.filter(s => s >= 0), gridRows = [], gridOf = new Map();
ROWS.forEach((r, i) => {
  if (r[STEP] < 0 || r[STATE] === "unread") return;
  const key = [r[ROLE], r[NAME], r[PASS], r[HIT]].join("\n");
  if (!gridOf.has(key)) gridOf.set(key, gridRows.length), gridRows.push(new Map());
  gridRows[gridOf.get(key)].set(r[STEP], i);
});
$("steps").hidden = loop.length < 2;
const gridHeight = Math.max(120, Math.min(480, gridRows.length * 14));
$("grid").style.height = gridHeight + "px";
const LABELS = 250;  // room for the stages' names
function drawGrid() {
  if (loop.length < 2) return;
  const [g, w, h] = prepared($("grid")), high = h - 18, cw = (w - LABELS) / loop.length, ch = high / gridRows.length;
  const bad = css("--bad"), good = css("--good"), apart = Math.max(1, Math.ceil(13 / ch));
  g.fillStyle = css("--dim");
  gridRows.forEach((cells, y) => {
    if (y % apart) return;
    const r = ROWS[cells.values().next().value], words = (r[ROLE] === "input" ? "→ " : "") + r[NAME] + (r[PASS] ? ` ${r[PASS]}` : "");
    g.fillText(words.length > 42 ? "…" + words.slice(-41) : words, 6, Math.max(10, (y + .5) * ch + 4), LABELS - 12);
  });
  gridRows.forEach((cells, y) => loop.forEach((step, x) => {
    const i = cells.get(step);
    if (i === undefined) return;
    const r = ROWS[i], over = Math.log10(Math.max(1e-30, num(r[ERROR])) / Math.max(1e-30, limitOf(r)));
    g.globalAlpha = isBad(r) ? .35 + .65 * Math.min(1, isFinite(over) ? over / 4 : 1) : Math.max(.06, Math.min(.45, .45 + over / 6));
    g.fillStyle = isBad(r) ? bad : good;
    g.fillRect(LABELS + x * cw, y * ch, Math.max(1, cw - (cw > 6)), Math.max(.6, ch - (ch > 4)));
    if (i === chosen) g.globalAlpha = 1, g.strokeStyle = css("--ink"), g.strokeRect(LABELS + x * cw, y * ch, Math.max(2, cw - 1), Math.max(2, ch - 1));
  }));
  g.globalAlpha = 1, g.fillStyle = css("--dim");
  const every = Math.max(1, Math.ceil(loop.length / 25));
  loop.forEach((step, x) => x % every || g.fillText(String(step), LABELS + 4 + x * cw, h - 5));
}
{
  const at = e => {
    const box = $("grid").getBoundingClientRect();
    const cells = gridRows[Math.floor((e.clientY - box.top) / (box.height - 18) * gridRows.length)];
    return cells && cells.get(loop[Math.floor((e.clientX - box.left - LABELS) / (box.width - LABELS) * loop.length)]);
  };
  $("grid").addEventListener("mousemove", e => {
    const i = at(e);
    tip(e, i !== undefined && `${title(ROWS[i])}: ${short(ROWS[i][ERROR])}`);
  });
  $("grid").addEventListener("mouseleave", e => tip(e));
  $("grid").addEventListener("click", e => at(e) !== undefined && choose(at(e), true));
}
)JS";

}  // namespace lockstep::page
