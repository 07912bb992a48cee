#include "report/page.h"

namespace lockstep::page {

const char* const kScriptFindings = R"JS(
{
  const F = S.first_divergence, verdict = $("verdict");
  verdict.textContent = S.verdict === "match" ? "Match" : S.verdict === "mismatch" ? "Mismatch" :
      S.verdict === "partial" ? "Partial" : "Nothing compared";
  verdict.className = S.verdict === "match" ? "good" : "bad";
  $("sub").textContent = `${S.compared} tensors compared, ${ROWS.filter(isBad).length} differ · reference ${S.reference}` +
      ` · candidate ${S.candidate} · noise floor from ${S.noise.source}`;
  const list = (box, pairs, cls) => {
    const dl = make("dl");
    for (const [k, v] of pairs) if (v !== undefined && v !== null && v !== "") dl.append(make("dt", k), make("dd", v, cls));
    box.append(dl);
  };
  if (F) {
    const box = $("divergence"), card = make("div", undefined, "card");
    box.append(make("h2", "First divergence"), card);
    list(card, [
      ["tensor", F.name + (F.step === null ? "" : ` · step ${F.step}`) + (F.hit ? ` · hit ${F.hit}` : "") + ` · ${F.role}` +
          (Object.values(F.tags).length ? ` · ${Object.values(F.tags).join(" ")}` : "")],
      ["kind", F.kind + (F.parent ? ` (${F.parent})` : "") +
          (F.worked_back_from.length ? `: its input, worked back from ${F.worked_back_from.join(", ")}, is wrong already` :
           F.kind === "module" && F.input_unknown ? ", or the code that feeds it: your run has nothing in between" : "")],
      ["error", `${short(F.error.relative)} relative, ${short(F.in_floors)} × the noise floor ${short(F.noise_floor)};` +
          ` largest ${short(F.error.max_abs)}; cosine ${short(F.error.cosine)}`],
      ["region", F.region], ["good inputs", F.good_inputs.join(", ")],
      ["where", F.where.candidate || F.where.reference], ["hint", F.hint]], "mono");
    box.append(make("h2", "Cause"));
    if (!S.causes.length) box.append(make("div", "No family explains both sides of this pair: no guess is made.", "card"));
    for (const c of S.causes) {
      const e = make("div", undefined, "card");
      e.append(make("b", c.cause), make("span", c.seen ? "  seen in the weights of both programs" : `  leaves ${short(c.residual)} unexplained`, "dim"));
      list(e, [["what", c.explanation], ["fix", c.fix], ["look at", c.look_at]]);
      box.append(e);
    }
  }
  $("growth").textContent = S.growth.words;
  if (S.notes.length) {
    $("notes").append(make("h2", "Notes"));
    for (const n of S.notes) $("notes").append(make("div", n, "card"));
  }
}
)JS";

}  // namespace lockstep::page
