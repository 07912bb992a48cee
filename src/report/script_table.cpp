#include "report/page.h"

namespace lockstep::page {

const char* const kScriptTable = R"JS(
// Every tensor: filtered, sorted, and only the rows in view exist.
const COLUMNS = [["state", STATE], ["error", ERROR], ["limit", FLOOR], ["largest", LARGEST], ["cosine", COSINE], ["role", ROLE],
                 ["step", STEP], ["pass", PASS], ["name", NAME], ["shape", SHAPE], ["dtype", DTYPE], ["note", NOTE]];
const HEIGHT = 24;
let order = [], sortBy = null, down = true;
for (const [words, column] of COLUMNS) {
  const th = make("th", words, column >= ERROR && column <= COSINE ? "number" : "");
  th.onclick = () => (down = sortBy === column ? !down : true, sortBy = column, refresh());
  $("head").append(th);
}
fill($("state"), "every state", distinct(STATE).sort());
fill($("role"), "every role", distinct(ROLE).sort());
fill($("step"), "every step", steps, stepWords);
fill($("pass"), "every pass", distinct(PASS).filter(p => p).sort());
function matcher(text) {
  if (!/[*?]/.test(text)) return name => name.toLowerCase().includes(text.toLowerCase());
  const glob = new RegExp("^" + text.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".") + "$", "i");
  return name => glob.test(name);
}
function refresh() {
  const named = matcher($("search").value.trim()), least = parseFloat($("least").value);
  const wanted = [[STATE, $("state").value], [ROLE, $("role").value], [STEP, $("step").value], [PASS, $("pass").value]];
  order = [];
  ROWS.forEach((r, i) => {
    if (wanted.every(([column, value]) => value === "" || String(r[column]) === value) && named(r[NAME]) &&
        (isNaN(least) || num(r[ERROR]) >= least)) order.push(i);
  });
  if (sortBy !== null) order.sort((a, b) => {
    const x = ROWS[a][sortBy], y = ROWS[b][sortBy], p = num(x), q = num(y);
    const c = isNaN(p) || isNaN(q) ? String(x).localeCompare(String(y), undefined, {numeric: true}) : p === q ? 0 : p - q;
    return down ? -c : c;
  });
  for (const [k, th] of [...$("head").children].entries())
    th.textContent = COLUMNS[k][0] + (COLUMNS[k][1] === sortBy ? down ? " ▾" : " ▴" : "");
  $("count").textContent = `${order.length} of ${ROWS.length}`;
  renderTable();
}
function text(r, column) {
  if (column === FLOOR) return short(limitOf(r));
  if (column === ERROR || column === LARGEST) return short(r[column]);
  if (column === COSINE) return typeof r[column] === "number" ? r[column].toFixed(6) : r[column];
  return column === STEP && r[STEP] < 0 ? "" : r[column];
}
function renderTable() {
  const box = $("scroll"), body = $("body"), from = Math.max(0, Math.floor(box.scrollTop / HEIGHT) - 10);
  const to = Math.min(order.length, from + Math.ceil(box.clientHeight / HEIGHT) + 20), rows = [];
  const pad = n => {
    const r = make("tr"), d = make("td");
    d.colSpan = COLUMNS.length, d.style.height = n * HEIGHT + "px", d.style.border = 0;
    r.append(d);
    return r;
  };
  if (from) rows.push(pad(from));
  for (let k = from; k < to; ++k) {
    const i = order[k], r = ROWS[i], tr = make("tr", undefined, r[STATE] + (i === D.first ? " first" : "") + (i === chosen ? " chosen" : ""));
    for (const [, column] of COLUMNS)
      tr.append(make("td", text(r, column), column === STATE ? "state" : column >= ERROR && column <= COSINE ? "number" : ""));
    tr.onclick = () => (choose(i), $("tensor").scrollIntoView({block: "nearest"}));
    rows.push(tr);
  }
  if (to < order.length) rows.push(pad(order.length - to));
  body.replaceChildren(...rows);
}
function clearFilters() {
  for (const id of ["search", "state", "role", "step", "pass", "least"]) $(id).value = "";
  sortBy = null, refresh();
}
// Brings a row into the table's view, in spite of the filters where it must be.
function reveal(i) {
  if (!order.includes(i)) clearFilters();
  $("scroll").scrollTop = Math.max(0, order.indexOf(i) * HEIGHT - 120);
  renderTable();
}
for (const id of ["search", "state", "role", "step", "pass", "least"])
  $(id).addEventListener("input", () => ($("scroll").scrollTop = 0, refresh()));
$("clear").onclick = clearFilters;
$("scroll").addEventListener("scroll", renderTable);
pickRows(), refresh();
if (ROWS.length) choose(D.first === null ? worst() : D.first, true);
addEventListener("resize", () => (drawCurve(), drawGrid(), renderTable()));
)JS";

}  // namespace lockstep::page
