#include "report/page.h"

namespace lockstep::page {

const char* const kScriptTensor = R"JS(
// Heat maps and histogram of the chosen tensor.
const colour = x => {  // x from -1 to 1: blue, white, red
  const k = Math.round(255 * (1 - Math.abs(x)));
  return x < 0 ? [k, k, 255] : [255, k, k];
};
function heat(map, words) {
  const f = make("figure"), c = make("canvas", undefined, "map"), raw = atob(map.cells);
  c.width = map.width, c.height = map.height;
  const g = c.getContext("2d"), im = g.createImageData(map.width, map.height);
  for (let i = 0; i < raw.length; ++i) {
    const byte = raw.charCodeAt(i), value = byte > 127 ? byte - 256 : byte;
    im.data.set(value === -128 ? [255, 0, 255, 255] : [...colour(value / 127), 255], 4 * i);
  }
  g.putImageData(im, 0, 0);
  const caption = make("figcaption", words);
  caption.append(make("br"), short(-num(map.limit)), make("span", undefined, "scale"), short(map.limit));
  if (raw.includes("\x80")) caption.append(", pink: not finite");
  c.addEventListener("mousemove", e => {
    const box = c.getBoundingClientRect(), x = Math.floor((e.clientX - box.left) / box.width * map.width),
          y = Math.floor((e.clientY - box.top) / box.height * map.height), byte = raw.charCodeAt(y * map.width + x);
    if (isNaN(byte)) return;
    const value = byte > 127 ? byte - 256 : byte, from = (k, n, all) => Math.ceil(k * all / n);
    const part = (k, n, all) => from(k + 1, n, all) - from(k, n, all) > 1 ? `${from(k, n, all)}–${from(k + 1, n, all) - 1}` : from(k, n, all);
    tip(e, `row ${part(y, map.height, map.rows)}, column ${part(x, map.width, map.columns)}: ` +
        (value === -128 ? "not finite" : `about ${short(value / 127 * num(map.limit))}`));
  });
  c.addEventListener("mouseleave", e => tip(e));
  f.append(c, caption);
  return f;
}
function bars(h) {
  const f = make("figure", undefined, "wide"), c = make("canvas", undefined, "bars"), n = h.reference.length;
  c.width = 1000, c.height = 400;
  const g = c.getContext("2d"), top = Math.max(1, ...h.reference, ...(h.candidate || [])), width = 1000 / n;
  const draw = (counts, name, from, share) => {
    g.fillStyle = css(name);
    counts.forEach((v, i) => {
      const y = v ? Math.max(3, Math.log10(1 + v) / Math.log10(1 + top) * 385) : 0;
      g.fillRect((i + from) * width, 400 - y, width * share, y);
    });
  };
  if (h.candidate) draw(h.reference, "--ref", .06, .44), draw(h.candidate, "--cand", .5, .44);
  else draw(h.reference, "--ref", .06, .88);
  const caption = make("figcaption", `values from ${short(h.low)} to ${short(h.high)}, counts on a log scale` +
      `${h.sampled ? ", of evenly spread rows" : ""}: `), key = (text, name) => {
    const s = make("span", text);
    s.style.color = css(name), s.style.fontWeight = 600;
    return s;
  };
  caption.append(key("reference", "--ref"), ...(h.candidate ? [" and ", key("yours", "--cand")] : [", both the same"]));
  f.append(c, caption);
  return f;
}
function showTensor() {
  const r = ROWS[chosen], maps = D.maps[chosen], box = $("tensor"), row = make("div", undefined, "row");
  $("previous").disabled = chosen === 0, $("next").disabled = chosen === ROWS.length - 1;
  const card = make("div", undefined, "card"), name = make("div", title(r), "mono");
  name.id = "chosen", card.append(name);
  card.append(make("div", `${r[STATE]} · ${r[ROLE]} · ${r[DTYPE]} ${r[SHAPE]} · error ${short(r[ERROR])}, limit ${short(limitOf(r))}` +
      ` · largest ${short(r[LARGEST])}${r[NOTE] ? ` · ${r[NOTE]}` : ""}`, isBad(r) ? "bad" : "dim"));
  box.replaceChildren(card);
  if (!maps) {
    card.append(make("div", r[STATE] === "unread" ? "Its values were not kept: record it in full to see them." : "No values to show.", "dim"));
    return;
  }
  const size = m => `${m.rows} × ${m.columns}${m.rows > m.height || m.columns > m.width ? `, in ${m.height} × ${m.width} cells` : ""}`;
  row.append(heat(maps.reference, `${maps.candidate ? "reference" : "both sides, identical"}: ${size(maps.reference)}`));
  if (maps.candidate) row.append(heat(maps.candidate, `yours: ${size(maps.candidate)}`));
  if (maps.difference) row.append(heat(maps.difference, `difference: ${size(maps.difference)}`));
  box.append(row);
  if (maps.histogram) {
    const second = make("div", undefined, "row");
    second.append(bars(maps.histogram)), box.append(second);
  }
}
$("previous").onclick = () => choose(chosen - 1, true);
$("next").onclick = () => choose(chosen + 1, true);
$("to-first").hidden = D.first === null;
$("to-first").onclick = () => choose(D.first, true);
const worst = () => {  // in units of what is allowed
  const over = r => r[STATE] === "unread" ? -1 : num(r[ERROR]) / Math.max(1e-30, limitOf(r));
  let best = 0;
  ROWS.forEach((r, i) => over(r) > over(ROWS[best]) && (best = i));
  return best;
};
$("to-worst").onclick = () => choose(worst(), true);
)JS";

}  // namespace lockstep::page
