#include "report/page.h"

namespace lockstep::page {

const char* const kScriptPictures = R"JS(
// Images side by side with their difference, and the ledger.
function picture(p, words, other) {
  const f = make("figure"), c = make("canvas"), raw = atob(p.rgb), second = other ? atob(other.rgb) : null;
  c.width = p.width, c.height = p.height;
  const g = c.getContext("2d"), im = g.createImageData(p.width, p.height);
  for (let i = 0, n = p.width * p.height; i < n; ++i) {
    for (let k = 0; k < 3; ++k) {
      const a = raw.charCodeAt(3 * i + k);
      im.data[4 * i + k] = second ? Math.min(255, 4 * Math.abs(a - second.charCodeAt(3 * i + k))) : a;
    }
    im.data[4 * i + 3] = 255;
  }
  g.putImageData(im, 0, 0);
  f.append(c, make("figcaption", words));
  return f;
}
if (D.pictures.length) $("pictures").append(make("h2", "Images"));
for (const p of D.pictures) {
  const row = make("div", undefined, "row"), fixed = (v, n) => typeof v === "number" ? v.toFixed(n) : v;
  row.append(picture(p.reference, "reference"), picture(p.candidate, "yours"));
  if (p.reference.width === p.candidate.width && p.reference.height === p.candidate.height)
    row.append(picture(p.candidate, "difference × 4", p.reference));
  $("pictures").append(make("div", `${p.name}: PSNR ${fixed(p.psnr, 2)} dB, SSIM ${fixed(p.ssim, 5)}`), row);
}
if (D.ledger) {
  const told = D.ledger.entries.filter(e => e.word !== "clean"), most = 400, box = $("ledger"), table = make("table"),
        head = make("tr"), scroll = make("div", undefined, "scroll");
  box.append(make("h2", "Error ledger"));
  box.append(make("div", `${told.length} of ${D.ledger.entries.length} stages carry an error; a source makes one of its own` +
      `${told.length > most ? `; the first ${most} are shown` : ""}`, "dim"));
  const times = {};
  for (const e of D.ledger.entries) if (e.word === "source") times[e.name] = (times[e.name] || 0) + 1;
  const sources = Object.keys(times).map(n => times[n] > 1 ? `${n} (${times[n]} times)` : n);
  box.append(make("div", sources.length ? `sources: ${sources.join(", ")}` : "no source", "card"));
  for (const n of D.ledger.notes) box.append(make("div", n, "card"));
  for (const k of ["word", "total", "local", "inherited", "gain", "stage"]) head.append(make("th", k, k === "word" || k === "stage" ? "" : "number"));
  table.append(head);
  for (const e of told.slice(0, most)) {
    const r = make("tr", undefined, e.word), words = [short(e.total), e.local === "NaN" ? "–" : short(e.local), short(e.inherited), short(e.gain)];
    r.append(make("td", e.word), ...words.map(v => make("td", v, "number")));
    r.append(make("td", (e.role === "input" ? "→ " : "") + e.name + (e.step === null ? "" : ` · step ${e.step}`)));
    table.append(r);
  }
  scroll.append(table), box.append(scroll);
}
)JS";

}  // namespace lockstep::page
