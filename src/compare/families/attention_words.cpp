// A formula of attention in words, and the name of what differs between two.
#include <fmt/format.h>

#include <tuple>

#include "compare/families/attention_formula.h"
#include "compare/families/fit.h"

namespace lockstep {

namespace {

Format held_in(const AttentionFormula& p) {
  for (const Format format : {p.inputs, p.rotated_inputs, p.scores, p.powers, p.weights, p.result})
    if (format) return format;
  return nullptr;
}

}  // namespace

std::string words_of(const AttentionFormula& p, int64_t d) {
  std::string out = "softmax(";
  out += p.rotation == Rotation::kNone ? "q k^T"
         : p.rotate_q && p.rotate_k    ? "rope(q) rope(k)^T"
         : p.rotate_q                  ? "rope(q) k^T"
         : p.rotate_k                  ? "q rope(k)^T"
                                       : "q k^T";
  out += p.scale == 0 ? fmt::format(" / sqrt({})", d) : fmt::format(" * {}", number(p.scale));
  static const char* const kMasks[] = {")",
                                       " + causal mask)",
                                       " + causal mask without itself)",
                                       " + causal mask without itself but for the first)",
                                       " + reversed causal mask)",
                                       " + mask of its own stream)",
                                       " + the mask inverted)"};
  out += kMasks[static_cast<size_t>(p.mask)];
  out += p.rotate_v ? " rope(v)" : " v";
  if (p.rotation != Rotation::kNone)
    out += p.rotation == Rotation::kInterleaved ? ", rope on neighbours (2i, 2i+1)" : ", rope on halves (i, i+d/2)";
  if (p.sign < 0) out += " by the negative angle";
  if (p.shift) out += fmt::format(", positions {}{:+d}", p.wraps ? "rolled by " : "", p.shift);
  if (p.from_zero) out += ", positions counted from 0";
  if (p.tables_exchanged) out += ", the streams' positions exchanged";
  if (p.tiled) out += ", key heads tiled";
  if (p.early_q || p.early_k)
    out += fmt::format(", {}{}{} before the norm", p.early_q ? "q" : "", p.early_q && p.early_k ? " and " : "",
                       p.early_k ? "k" : "");
  for (const auto& [factor, unit, name] :
       {std::tuple{p.q_factor, p.unit_q, "q"}, {p.k_factor, p.unit_k, "k"}, {p.v_factor, p.unit_v, "v"}}) {
    if (factor != 1) {
      const std::string named = constant_name(factor, {d}, 1e-4);
      out += fmt::format(", {} times {}", name, named.empty() ? number(factor) : named);
    }
    if (unit) out += fmt::format(", {} normalised", name);
  }
  if (p.strided)
    out += fmt::format(", heads of {}{}{} side by side", p.strided & 1 ? "q" : "", p.strided & 2 ? "k" : "",
                       p.strided & 4 ? "v" : "");
  if (p.own_stream) out += ", over its own stream alone";
  if (p.qkv) out += fmt::format(", {}", kQkvOrders[p.qkv].words);
  if (p.cos_sin) out += ", cos and sin exchanged";
  if (p.turns != 1) out += fmt::format(", by {:g} times the angle", p.turns);
  if (p.backwards) out += ", positions in reverse order";
  if (p.rotated < 1) out += fmt::format(", rope on {:g} of each head", p.rotated);
  if (p.q_weight >= 0 || p.k_weight >= 0) out += ", by another norm's weight";
  if (p.only_operand >= 0) out += p.only_operand == 0 ? " (q alone)" : " (k alone)";
  if (p.only_stream >= 0) out += p.only_stream == 0 ? " (text stream alone)" : " (image stream alone)";
  if (p.hidden_first) out += fmt::format(", without the first {} keys", p.hidden_first);
  if (p.hidden_last) out += fmt::format(", without the last {} keys", p.hidden_last);
  if (p.padded) out += fmt::format(", the last {} keys of the prompt hidden", p.padded);
  if (p.hidden_count) out += fmt::format(", keys {} to {} hidden", p.hidden_from, p.hidden_from + p.hidden_count - 1);
  if (p.one_group) out += ", the first key head for all";
  if (p.window) out += fmt::format(", keys within {} alone", p.window);
  if (p.weighting != Weighting::kSoftmax)
    out += p.weighting == Weighting::kPlain        ? ", scores used without softmax"
           : p.weighting == Weighting::kSigmoid    ? ", sigmoid in place of softmax"
           : p.weighting == Weighting::kMaskedLate ? ", masked after the softmax"
                                                   : ", softmax over the queries";
  if (p.result_factor != 1) out += fmt::format(", the result times {}", number(p.result_factor));
  if (p.cap > 0) out += fmt::format(", scores capped at {:g}", p.cap);
  if (p.head_shift) out += fmt::format(", key heads moved by {}", p.head_shift);
  const std::pair<Format, const char*> held[] = {{p.inputs, "q, k, v"},  {p.rotated_inputs, "q, k, v"},
                                                 {p.scores, "scores"},   {p.powers, "exponentials"},
                                                 {p.weights, "weights"}, {p.result, "the result"}};
  for (const auto& [format, what] : held)
    if (format) out += fmt::format(", {} in {}", what, format->name);
  return out;
}

Finding describe(const AttentionFormula& r, const AttentionFormula& c, int64_t d) {
  Finding out{"",          fmt::format("reference: {}; yours: {}", words_of(r, d), words_of(c, d)),
              "",          "",
              r.residual,  c.residual,
              0.8,         0,
              Blame::kNone};
  const auto set = [&](const char* cause, std::string fix) { out.cause = cause, out.fix = std::move(fix); };
  if (c.rotation != r.rotation && c.rotation == Rotation::kNone)
    set("rotary.missing", "rotate q and k by the position table");
  else if (c.rotation != r.rotation && r.rotation == Rotation::kNone)
    set("rotary.added", "do not rotate q and k here");
  else if (c.rotation != r.rotation)
    set("rotary.style", r.rotation == Rotation::kInterleaved ? "pair neighbours (2i, 2i+1), not halves (i, i+d/2)"
                                                             : "pair halves (i, i+d/2), not neighbours (2i, 2i+1)");
  else if (c.cos_sin != r.cos_sin)
    set("rotary.cos_sin_exchanged", "cos turns the element itself, sin its partner");
  else if (c.backwards != r.backwards)
    set("rotary.offset", "positions run backwards");
  else if (c.turns != r.turns)
    set("rotary.factor", "rotate once, by the angle of the table");
  else if (c.rotated != r.rotated)
    set("rotary.partial", "rotate the whole head");
  else if (c.sign != r.sign)
    set("rotary.sign", "turn the other way: x0 cos - x1 sin, x0 sin + x1 cos");
  else if (c.rotate_q != r.rotate_q || c.rotate_k != r.rotate_k)
    set("rotary.one_side", fmt::format("rotate {} too", c.rotate_q ? "k" : "q"));
  else if (c.rotate_v != r.rotate_v)
    set("rotary.on_values", "do not rotate v");
  else if (c.tables_exchanged != r.tables_exchanged)
    set("rotary.streams_exchanged", "give the text the text's positions and the image the image's");
  else if (c.from_zero != r.from_zero)
    set("rotary.offset", "the reference's first token does not stand at 0: centre the image, start the text behind it");
  else if (c.shift != r.shift)
    set("rotary.offset", fmt::format("positions are off by {}", c.shift));
  else if (c.q_factor != r.q_factor || c.k_factor != r.k_factor || c.v_factor != r.v_factor)
    set("attention.scale", fmt::format("remove the factor on {}", c.q_factor != r.q_factor   ? "q"
                                                                  : c.k_factor != r.k_factor ? "k"
                                                                                             : "v"));
  else if (c.result_factor != r.result_factor)
    set("attention.scale", "scale the scores before the softmax, not its result");
  else if (c.scale != r.scale)
    set("attention.scale",
        fmt::format("scale the scores by {}", r.scale == 0 ? fmt::format("1/sqrt({})", d) : number(r.scale)));
  else if (c.mask != r.mask || c.hidden_first != r.hidden_first || c.hidden_last != r.hidden_last ||
           c.window != r.window || c.padded != r.padded || c.hidden_count != r.hidden_count)
    set(c.hidden_count || c.mask == Mask::kInverted                     ? "attention.mask"
        : r.padded && !c.padded                                         ? "attention.mask_missing"
        : r.mask == Mask::kCausal && c.mask == Mask::kNone && !c.window ? "attention.mask_missing"
        : r.mask == Mask::kNone                                         ? "attention.mask_added"
                                                                        : "attention.mask",
        r.padded                  ? "hide the keys that pad the prompt, no others"
        : r.mask == Mask::kCausal ? "mask the tokens that come later, no others"
                                  : "remove the mask");
  else if (c.weighting != r.weighting)
    set("attention.softmax", "take the softmax of the scores over the keys");
  else if (c.cap != r.cap)
    set("attention.cap", "do not cap the scores");
  else if (const Format held = held_in(c))
    set(held->cause, "compute the attention in the reference's precision");
  else if (c.one_group != r.one_group || c.tiled != r.tiled || c.head_shift != r.head_shift)
    set("attention.key_groups",
        "repeat each key head for consecutive query heads (repeat_interleave), do not tile them");
  else if (c.early_k && c.unit_k && c.k_weight >= 0)
    set("norm.other_weight", "normalise k by its own stream's norm");
  else if (c.early_q && c.unit_q && c.q_weight >= 0)
    set("norm.other_weight", "normalise q by its own stream's norm");
  else if ((c.early_k && c.unit_k) || (c.early_q && c.unit_q))
    set("norm.weight_missing", "multiply by the norm's weight");
  else if (c.strided != r.strided)
    set("layout.heads", "split the projection into heads first, then the head's channels: [tokens, heads, d]");
  else if (c.unit_q != r.unit_q || c.unit_k != r.unit_k || c.unit_v != r.unit_v)
    set("attention.norm_added", "use q, k and v as they are, without another norm");
  else if (c.own_stream != r.own_stream)
    set("attention.streams", "attend over both streams together");
  else if (c.early_q != r.early_q || c.early_k != r.early_k)
    set("attention.norm_missing", "use q and k as they leave their norms");
  else
    set("attention.qkv_exchanged", "take q, k and v in the reference's order");
  return out;
}

}  // namespace lockstep
