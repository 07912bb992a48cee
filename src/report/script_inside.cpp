#include "report/page.h"

namespace lockstep::page {

const char* const kScriptInside = R"JS(
if (D.inside) {
  const Z = D.inside, box = $("inside");
  box.append(make("h2", "Lines"));
  box.append(make("div", `${Z.call.yours} against ${Z.call.reference} (reference): ${Z.values.matched} of ${Z.values.compared} values agree` +
      `; the output differs by ${short(Z.output_error)}`, "dim"));
  for (const i of Z.inputs)
    box.append(make("div", i.given ? `Your call was given the reference's ${i.yours}, from which yours differed by ${short(i.distance)}.` :
        `${i.yours} is your own: ${i.note}`, "dim"));
  if (Z.incomplete) box.append(make("div", `Not answered: ${Z.incomplete}`, "card"));
  else if (Z.agrees) box.append(make("div", "No divergence inside this call.", "card"));
  const side = (title, lines, cls) => {
    const part = make("div", undefined, `source ${cls}`);
    let file = "";
    part.append(make("div", title, "dim"));
    for (const line of lines) {
      if (line.file !== file) part.append(make("div", file = line.file, "file"));
      const row = make("pre", undefined, line.named ? "named" : "");
      row.append(make("span", String(line.line).padStart(4) + "  ", "dim"), line.code);
      part.append(row);
    }
    return part;
  };
  Z.regions.forEach((r, index) => {
    const card = make("div", undefined, "card region"), sides = make("div", undefined, "sides");
    card.append(make("b", `${index + 1}. ${r.kind}`), make("span", r.note ? `  ${r.note}` : "", ""));
    if (r.cause) card.append(make("div", `${r.cause.explanation} Fix: ${r.cause.fix}`));
    sides.append(side("yours", r.source.yours, "yours"), side("reference", r.source.reference, "theirs"));
    card.append(sides);
    for (const a of r.arguments) card.append(make("div", `${a.name}: yours ${a.yours}, reference ${a.reference}`, "mono"));
    for (const i of r.inputs) card.append(make("div", `${i.parameter ? i.parameter + ": " : "takes "}${i.words}`, "mono dim"));
    card.append(make("div", r.rest_is_proven ? "Everything after it is proven right: the reference makes your result of your value." :
        `The result differs by ${short(r.error)}.`, "dim"));
    box.append(card);
  });
}
)JS";

}  // namespace lockstep::page
