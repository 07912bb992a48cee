// Lines of both sources: inside the call that diverges first, as zoom answers.
import {el, make} from "../base/dom.js";
import {short} from "../base/numbers.js";

export function sourceSide(title, lines, cls) {
  const part = make("div", undefined, `source ${cls}`);
  let file = "";
  part.append(make("div", title, "dim"));
  for (const line of lines) {
    if (line.file !== undefined && line.file !== file) part.append(make("div", file = line.file, "file"));
    const row = make("pre", undefined, line.named ? "named" : "");
    row.append(make("span", String(line.line).padStart(4) + "  ", "dim"), line.code);
    part.append(row);
  }
  return part;
}

export function insideCards(Z) {
  const out = [make("div", `${Z.call.yours} against ${Z.call.reference} (reference): ${Z.values.matched} of ${Z.values.compared} values agree; the output differs by ${short(Z.output_error)}`, "dim")];
  for (const i of Z.inputs)
    out.push(make("div", i.given ? `Your call was given the reference's ${i.yours}, from which yours differed by ${short(i.distance)}.` : `${i.yours} is your own: ${i.note}`, "dim"));
  if (Z.incomplete) out.push(make("div", `Not answered: ${Z.incomplete}`, "card"));
  else if (Z.agrees) out.push(make("div", "No divergence inside this call.", "card"));
  Z.regions.forEach((r, index) => {
    const card = el("div", {class: "card region"}, make("b", `${index + 1}. ${r.kind}`), make("span", r.note ? `  ${r.note}` : ""));
    if (r.cause) card.append(make("div", `${r.cause.explanation} Fix: ${r.cause.fix}`));
    card.append(el("div", {class: "sides"}, sourceSide("yours", r.source.yours, "yours"), sourceSide("reference", r.source.reference, "theirs")));
    for (const a of r.arguments) card.append(make("div", `${a.name}: yours ${a.yours}, reference ${a.reference}`, "mono"));
    for (const i of r.inputs) card.append(make("div", `${i.parameter ? i.parameter + ": " : "takes "}${i.words}`, "mono dim"));
    card.append(make("div", r.rest_is_proven ? "Everything after it is proven right: the reference makes your result of your value." : `The result differs by ${short(r.error)}.`, "dim"));
    out.push(card);
  });
  return out;
}
