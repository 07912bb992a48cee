// The answer of a comparison in words: verdict, first divergence, causes, notes.
import {el, facts, make} from "../base/dom.js";
import {short} from "../base/numbers.js";

export const verdictWords = v => v === "match" ? "Match" : v === "mismatch" ? "Mismatch" : v === "partial" ? "Partial" : "Nothing compared";

export function divergenceCard(F) {
  return el("div", {class: "card divergence"}, facts([
    ["tensor", F.name + (F.step === null ? "" : ` · step ${F.step}`) + (F.hit ? ` · hit ${F.hit}` : "") + ` · ${F.role}` + (Object.values(F.tags).length ? ` · ${Object.values(F.tags).join(" ")}` : "")],
    ["kind", F.kind + (F.parent ? ` (${F.parent})` : "") +
        (F.worked_back_from.length ? `: its input, worked back from ${F.worked_back_from.join(", ")}, is wrong already` :
         F.kind === "module" && F.input_unknown ? ", or the code that feeds it: your run has nothing in between" : "")],
    ["error", `${short(F.error.relative)} relative, ${short(F.in_floors)} × the noise floor ${short(F.noise_floor)}; largest ${short(F.error.max_abs)}; cosine ${short(F.error.cosine)}`],
    ["region", F.region], ["good inputs", F.good_inputs.join(", ")],
    ["where", F.where.candidate || F.where.reference], ["hint", F.hint]], "mono"));
}

export function causeCards(causes) {
  if (!causes.length) return [make("div", "No known mistake explains both sides of this pair, so no cause is named.", "card")];
  return causes.map(c => el("div", {class: "card cause"}, make("b", c.cause),
    make("span", c.seen ? "  seen in the weights of both programs" : `  leaves ${short(c.residual)} unexplained`, "dim"),
    facts([["what", c.explanation], ["fix", c.fix], ["look at", c.look_at]])));
}

export const noteCards = notes => notes.map(n => make("div", n, "card note"));
