// A formula of attention in words, and the name of what differs between two.
#include <fmt/format.h>

#include <algorithm>

#include "compare/families/attention_formula.h"
#include "compare/families/fit.h"
#include "compare/families/rotary_turning.h"

namespace lockstep {
namespace {

const char* const kOperandNames[] = {"q", "k", "v"};

// "3, 5 to 9": of many runs the first ones.
std::string runs_words(const std::vector<int64_t>& keys) {
  constexpr size_t kMostRuns = 6;
  std::string out;
  for (size_t i = 0, runs = 0; i < keys.size(); ++runs) {
    if (runs == kMostRuns) return out + ", ...";
    size_t end = i;
    while (end + 1 < keys.size() && keys[end + 1] == keys[end] + 1) ++end;
    if (runs) out += ", ";
    out += end > i ? fmt::format("{} to {}", keys[i], keys[end]) : fmt::format("{}", keys[i]);
    i = end + 1;
  }
  return out;
}

std::string hidden_words(const MaskFormula& m) {
  std::string out;
  const auto add = [&](const std::string& words) { out += (out.empty() ? "" : ", ") + words; };
  if (m.order != Order::kAny) add(m.order == Order::kCausal ? "later keys" : "earlier keys");
  if (m.diagonal) add(fmt::format("from {:+d} on", m.diagonal + 1));
  if (m.hidden_first) add(fmt::format("the first {} keys", m.hidden_first));
  if (m.hidden_last) add(fmt::format("the last {} keys", m.hidden_last));
  if (m.padded) add(fmt::format("the last {} keys of the prompt", m.padded));
  if (m.padded_front) add(fmt::format("the first {} keys of the prompt", m.padded_front));
  if (m.hidden_count) add(fmt::format("keys {} to {}", m.hidden_from, m.hidden_from + m.hidden_count - 1));
  if (!m.hidden_keys.empty()) add("keys " + runs_words(m.hidden_keys));
  if (m.window) add(fmt::format("keys {} or more away", m.window));
  if (m.block) add(fmt::format("keys outside the query's block of {}", m.block));
  if (m.stride) add(fmt::format("keys that are no multiple of {} away", m.stride));
  if (m.prefix) add(fmt::format("but none of the first {}", m.prefix));
  if (m.streams != SeenStreams::kBoth)
    add(m.streams == SeenStreams::kOwn ? "the other stream" : "the query's own stream");
  if (out.empty()) out = "nothing";
  if (m.own_order) out += " (within each stream)";
  if (m.inverted) out = "all but " + out;
  if (m.transposed) out += ", with queries in place of keys";
  out += " hidden";
  if (m.hiding == Hiding::kReplaced) out += fmt::format(" by a score of {}", number(m.value));
  if (m.hiding == Hiding::kZeroed) out += " by zeros in place of keys and values";
  if (m.hiding == Hiding::kAdded) out += fmt::format(" by {} added to the score", number(m.value));
  return out;
}

std::string weighting_words(Weighting weighting) {
  switch (weighting) {
    case Weighting::kSoftmax:
      return "softmax over the keys";
    case Weighting::kPlain:
      return "scores used without softmax";
    case Weighting::kSigmoid:
      return "sigmoid in place of softmax";
    case Weighting::kOverQueries:
      return "softmax over the queries";
    case Weighting::kOverHeads:
      return "softmax over the heads";
    case Weighting::kMaskedLate:
      return "masked after the softmax";
    case Weighting::kByStream:
      return "a softmax for each stream's keys, the results summed";
    case Weighting::kPowers:
      return "exp(scores - largest), not divided by their sum";
    case Weighting::kRelu:
      return "relu in place of softmax";
    case Weighting::kTwice:
      return "softmax of the softmax";
    case Weighting::kEqual:
      return "all keys with equal weight";
    case Weighting::kTransposed:
      return "the weights transposed before they meet the values";
    case Weighting::kOwnValue:
      return "each token's own value, unchanged";
    case Weighting::kAcrossItems:
      return "softmax over the items of the batch, not over the tokens of one";
    case Weighting::kAcrossHeads:
      return "softmax over the heads of one token, not over the tokens of one head";
    case Weighting::kOverChannels:
      return "softmax(q^T k) over the channels, not the tokens";
  }
  return "";
}

const char* cut_words(HeadCut cut) {
  return cut == HeadCut::kBlocks    ? "one behind the other"
         : cut == HeadCut::kStrided ? "side by side (the head's number runs fastest)"
         : cut == HeadCut::kByShape ? "by shape alone ([tokens, heads] taken for [heads, tokens])"
                                    : "by shape alone, both streams joined ([tokens, heads] taken for [heads, tokens])";
}

const char* steps_words(Steps steps) {
  return steps == Steps::kByRow       ? "a step for each token of a head"
         : steps == Steps::kByHead    ? "a step for each head"
         : steps == Steps::kByChannel ? "a step for each channel of a head"
                                      : "one step for all";
}

std::string operand_words(const OperandFormula& r, const OperandFormula& c, const AttentionInputs& inputs, int64_t d) {
  std::string out;
  const auto add = [&](const std::string& words) { out += (out.empty() ? "" : ", ") + words; };
  if (c.source != r.source) add(fmt::format("is {}", kOperandNames[c.source]));
  if (c.fused != r.fused)
    add(c.fused == Fused::kInTurn ? "every third channel of the fused projection"
                                  : "a third of each head of the fused projection");
  if (c.early != r.early) add("taken before its norm");
  if (c.unit != r.unit)
    add(c.unit == Unit::kRms             ? "normalised"
        : c.unit == Unit::kLength        ? "brought to length 1"
        : c.unit == Unit::kLayer         ? "normalised with its mean taken off"
        : c.unit == Unit::kRmsOfAllHeads ? "normalised over all heads together"
                                         : "not normalised");
  if (c.weight != r.weight) add("by another norm's weight");
  if (c.factor != r.factor) {
    const std::string named = constant_name(c.factor, {d}, 1e-4);
    add(fmt::format("times {}", named.empty() ? number(c.factor) : named));
  }
  if (!(c.turning == r.turning)) add(words_of(c.turning));
  if (c.call != r.call) add(fmt::format("taken from {}", inputs.others[static_cast<size_t>(c.call - 1)].when));
  if (c.variant != r.variant)
    add(fmt::format("rotated by another table than the recorded one, {}",
                    inputs.variants().list()[static_cast<size_t>(c.variant)].words));
  if (c.steps != r.steps)
    add(fmt::format("in {}, {}", c.in_steps ? c.in_steps->name : "whole numbers of 8 bits", steps_words(c.steps)));
  if (c.other_table != r.other_table) add("rotated by the other stream's positions");
  if (c.joint_table != r.joint_table) add("rotated by one table for both streams, the image's part first");
  if (c.turned_heads != r.turned_heads) add(fmt::format("rotated in the first {} heads alone", c.turned_heads));
  if (c.by_head != r.by_head) add("rotated by the head's number in place of the token's");
  if (c.shift != r.shift) add(fmt::format("positions {}{:+d}", c.wraps ? "rolled by " : "", c.shift));
  if (c.repeats != r.repeats) add(fmt::format("the first {} positions again and again", c.repeats));
  if (c.until != r.until) add(fmt::format("no position beyond the {}", ordinal(static_cast<size_t>(c.until))));
  if (c.backwards != r.backwards) add("positions in reverse order");
  if (c.cut != r.cut) add(fmt::format("heads cut {}{}", cut_words(c.cut), c.cut_first ? " before it is rotated" : ""));
  if (c.groups != r.groups)
    add(c.groups == KeyGroups::kTiled      ? "heads tiled"
        : c.groups == KeyGroups::kReversed ? "heads in reverse order"
                                           : "the first head for all");
  if (c.head_shift != r.head_shift) add(fmt::format("heads moved by {}", c.head_shift));
  if (c.repeat != r.repeat) add(fmt::format("each head for {} of the query's", c.repeat));
  if (c.columns != r.columns)
    add(c.columns < 0 ? "tokens in reverse order"
                      : fmt::format("tokens read column by column from a grid of {} columns", c.columns));
  if (c.token_shift != r.token_shift) add(fmt::format("tokens of the joint sequence moved by {}", c.token_shift));
  for (const Format format : {c.held, c.held_turned})
    if (format) add(fmt::format("in {}", format->name));
  return out;
}

// What the candidate does otherwise, operand by operand: those with the same difference are said together.
std::string difference_words(const AttentionFormula& r, const AttentionFormula& c, const AttentionInputs& inputs,
                             int64_t d) {
  const size_t streams = inputs.streams.size();
  std::vector<std::pair<std::string, std::string>> said;  // difference, where
  for (size_t o = 0; o < 3; ++o) {
    std::vector<std::string> each;
    for (size_t s = 0; s < streams; ++s) each.push_back(operand_words(r.of[s][o], c.of[s][o], inputs, d));
    for (size_t s = 0; s < streams; ++s) {
      if (each[s].empty() || (s > 0 && each[s] == each[0])) continue;
      std::string where = kOperandNames[o];
      if (streams == 2 && each[0] != each[1]) where += s == 0 ? " of the text" : " of the image";
      const auto same = std::find_if(said.begin(), said.end(), [&](const auto& one) { return one.first == each[s]; });
      if (same == said.end())
        said.emplace_back(each[s], where);
      else
        same->second += " and " + where;
    }
  }
  std::string out;
  const auto add = [&](const std::string& words) { out += (out.empty() ? "" : "; ") + words; };
  for (const auto& [difference, where] : said) add(where + ": " + difference);
  if (c.scale != r.scale)
    add(c.scale == 0 ? fmt::format("scores / sqrt({})", c.head_size ? c.head_size : d)
                     : fmt::format("scores * {}", number(c.scale)));
  if (!(c.mask == r.mask)) add(hidden_words(c.mask));
  if (c.weighting != r.weighting) add(weighting_words(c.weighting));
  if (c.keys_of_call != r.keys_of_call)
    add(fmt::format("the keys and values of {} are seen beside its own",
                    inputs.others[static_cast<size_t>(c.keys_of_call - 1)].when));
  if (c.zero_keys != r.zero_keys) add(fmt::format("{:g} keys of zeros take part", c.zero_keys));
  for (size_t s = 0; s < 2; ++s)
    if (c.counted[s] != r.counted[s])
      add(fmt::format("keys of the {} counted {:g} times", s == 0 ? "text" : "image", c.counted[s]));
  if (c.cap != r.cap) add(fmt::format("scores capped at {:g}", c.cap));
  if (c.result_factor != r.result_factor) add(fmt::format("the result times {}", number(c.result_factor)));
  if (c.head_size != r.head_size) add(fmt::format("heads of {} in place of {}", c.head_size, d));
  if (c.merge != r.merge) add(fmt::format("heads put together {}", cut_words(c.merge)));
  if (c.merged_backwards != r.merged_backwards) add("heads put together in reverse order");
  if (c.merged_shift != r.merged_shift) add(fmt::format("heads put together {} places on", c.merged_shift));
  if (c.row_shift != r.row_shift) add(fmt::format("the joint result cut {} tokens on", c.row_shift));
  const std::pair<Format, const char*> held[] = {
      {c.scores, "scores"}, {c.powers, "exponentials"}, {c.weights, "weights"}, {c.result, "the result"}};
  for (const auto& [format, what] : held)
    if (format) add(fmt::format("{} in {}", what, format->name));
  return out;
}

struct Named {
  const char* cause;
  std::string fix;
};

// The mask alone differs.
Named mask_difference(const MaskFormula& r, const MaskFormula& c) {
  if (c.streams != r.streams && c.streams == SeenStreams::kOwn)
    return {"attention.streams", "attend over both streams together"};
  const std::string fix = r.padded                    ? "hide the keys that pad the prompt, no others"
                          : r.order == Order::kCausal ? "mask the tokens that come later, no others"
                                                      : "remove the mask";
  if (c.hiding != r.hiding)
    return {"attention.mask",
            fix + ": a hidden key's score is minus infinity before the softmax, not a number like the others"};
  const bool lost =
      (r.padded && !c.padded && !c.padded_front && !c.hidden_count && !c.hidden_last && c.hidden_keys.empty()) ||
      (r.order != Order::kAny && c.order == Order::kAny && !c.window && !c.block);
  if (lost && !c.inverted) return {"attention.mask_missing", fix};
  return {r.hides_something() ? "attention.mask" : "attention.mask_added", fix};
}

// What differs in an operand, the first that does.
Named operand_difference(const OperandFormula& r, const OperandFormula& c, const AttentionInputs& inputs,
                         size_t operand, bool grouped) {
  const std::string name = kOperandNames[operand];
  if (c.call != r.call)
    return {"stage.replaced", fmt::format("take {} from this {}", name,
                                          inputs.others[static_cast<size_t>(c.call - 1)].is_of_batch
                                              ? "item of the batch"
                                              : "call: what an earlier one had is no longer true")};
  if (!(c.turning == r.turning)) {
    if (operand == 2) return {"rotary.on_values", "do not rotate v"};
    return {turning_cause(r.turning, c.turning), turning_fix(r.turning, c.turning)};
  }
  if (c.variant != r.variant) {
    const TableVariant& variant = inputs.variants().list()[static_cast<size_t>(c.variant)];
    return {variant.cause, variant.fix};
  }
  if (c.other_table != r.other_table || c.joint_table != r.joint_table)
    return {"rotary.streams_exchanged", "give the text the text's positions and the image the image's"};
  if (c.turned_heads != r.turned_heads) return {"rotary.missing", "rotate every head"};
  if (c.by_head != r.by_head)
    return {"rotary.positions", "rotate by the token's position: the axis of the tokens, not that of the heads"};
  if (c.repeats != r.repeats || c.until != r.until)
    return {"rotary.positions", "give each token a row of its own in the table of positions"};
  if (c.backwards != r.backwards) return {"rotary.offset", "positions run backwards"};
  if (c.shift != r.shift) return {"rotary.offset", fmt::format("positions are off by {}", c.shift)};
  if (c.factor != r.factor) return {"attention.scale", "remove the factor on " + name};
  if (c.steps != r.steps)
    return {c.in_steps ? c.in_steps->cause : "precision.integer", "compute the attention in the reference's precision"};
  if (const Format format = c.held ? c.held : c.held_turned)
    return {format->cause, "compute the attention in the reference's precision"};
  if (c.fused != r.fused)
    return {"layout.interleaved", "take q, k and v as thirds of the fused projection, one behind the other"};
  if (c.early && c.weight >= 0)
    return {c.unit == Unit::kRms ? "norm.other_weight" : "norm.kind",
            c.unit == Unit::kRms ? "normalise " + name + " by its own stream's norm"
                                 : "normalise each head of " + name + " by its root mean square"};
  if (c.early && c.unit != Unit::kNone) return {"norm.weight_missing", "multiply by the norm's weight"};
  if (c.early != r.early) return {"attention.norm_missing", "use q and k as they leave their norms"};
  if (c.unit != r.unit) return {"attention.norm_added", "use q, k and v as they are, without another norm"};
  if (c.cut != r.cut)
    return {"layout.heads",
            "split the projection into [tokens, heads, d] and move the axes, before it is used by head"};
  if (c.columns != r.columns)
    return {c.columns < 0 ? "layout.reversed" : "layout.axes", "flatten q, k and v in one order of rows and columns"};
  if (c.groups != r.groups || c.repeat != r.repeat || c.head_shift != r.head_shift) {
    if (grouped && operand != 0)
      return {"attention.key_groups",
              "repeat each key head for consecutive query heads (repeat_interleave), do not tile them"};
    return {"attention.heads", "give each head its own q, k and v"};
  }
  if (c.token_shift != r.token_shift)
    return {"attention.streams", "join the streams of q, k and v in one order: text, then image"};
  return {"attention.qkv_exchanged", "take q, k and v in the reference's order"};
}

Named difference(const AttentionFormula& r, const AttentionFormula& c, const AttentionInputs& inputs, bool grouped,
                 int64_t d) {
  const size_t streams = inputs.streams.size();
  const auto differs = [&](size_t operand) {
    for (size_t s = 0; s < streams; ++s)
      if (!(c.of[s][operand] == r.of[s][operand])) return true;
    return false;
  };
  for (size_t s = 0; s < streams; ++s)
    for (size_t o = 0; o < 3; ++o) {
      const OperandFormula& used = c.of[s][o];
      if (used == r.of[s][o]) continue;
      // Another operand as it stands there, rotated or not: they were exchanged after all that.
      if (used.source != r.of[s][o].source && used == r.of[s][static_cast<size_t>(used.source)])
        return {"attention.qkv_exchanged", "take q, k and v in the reference's order"};
      Named out = operand_difference(r.of[s][o], c.of[s][o], inputs, o, grouped);
      if (std::string_view(out.cause) == "attention.streams" && streams == 1)
        out = {"layout.rolled", "give each query the keys and values of the tokens that stand there"};
      if (std::string_view(out.cause) == "rotary.missing" && differs(0) != differs(1))
        out = {"rotary.one_side", fmt::format("rotate {} too", kOperandNames[o])};
      return out;
    }
  if (c.head_size != r.head_size)
    return {"attention.heads", fmt::format("cut q, k and v into heads of {}", r.head_size ? r.head_size : d)};
  if (c.result_factor != r.result_factor && c.weighting == r.weighting)
    return {"attention.scale", "scale the scores before the softmax, not its result"};
  if (c.scale != r.scale && c.weighting == r.weighting) {
    const double base = r.scale == 0 ? 1 / std::sqrt(static_cast<double>(d)) : r.scale;
    if (std::fabs(c.scale / base / std::log(2.0) - 1) < 1e-4)
      return {"attention.softmax", "take the softmax to the base e, not 2"};
    return {"attention.scale",
            fmt::format("scale the scores by {}", r.scale == 0 ? fmt::format("1/sqrt({})", d) : number(r.scale))};
  }
  if (c.weighting == Weighting::kAcrossHeads)
    return {"attention.heads", "move the heads before the tokens: the kernel attends over the last axis but one"};
  if (c.weighting == Weighting::kAcrossItems)
    return {"layout.axes", "give the kernel the batch first: it takes another axis for the tokens"};
  if (c.keys_of_call != r.keys_of_call && inputs.others[static_cast<size_t>(c.keys_of_call - 1)].is_of_batch)
    return {"attention.mask", "attend within each item of the batch: hide the tokens of the others"};
  if (c.keys_of_call != r.keys_of_call)
    return {"attention.mask",
            "attend to this call's own tokens alone: clear the keys and values that an earlier one left"};
  if (!(c.mask == r.mask)) return mask_difference(r.mask, c.mask);
  if (c.weighting == Weighting::kOwnValue) return {"stage.replaced", "attend: the values alone are no result"};
  if (c.weighting == Weighting::kOverChannels)
    return {"layout.axes", "attend over the tokens: move the channels behind them before q k^T"};
  if (c.weighting != r.weighting) return {"attention.softmax", "take the softmax of the scores over the keys"};
  if (c.zero_keys != r.zero_keys)
    return {"attention.softmax", "sum over the tokens that are there: hide keys that fill up a size"};
  if (c.counted != r.counted) return {"attention.streams", "join each stream's keys and values once"};
  if (c.cap != r.cap) return {"attention.cap", "do not cap the scores"};
  for (const Format format : {c.scores, c.powers, c.weights, c.result})
    if (format) return {format->cause, "compute the attention in the reference's precision"};
  if (c.row_shift != r.row_shift && streams == 1) return {"layout.rolled", "keep the order of the tokens"};
  if (c.row_shift != r.row_shift)
    return {"attention.streams", "join text, then image, and part the result where the text ends"};
  return {"layout.heads", "put the heads together as [tokens, heads, d], in their order"};
}

}  // namespace

std::string words_of(const AttentionFormula& p, int64_t d) {
  const Turning& turning = p.of[0][0].turning;
  std::string out = "softmax(";
  out += turning.rotation == Rotation::kNone ? "q k^T" : "rope(q) rope(k)^T";
  out += p.scale == 0 ? fmt::format(" / sqrt({})", d) : fmt::format(" * {}", number(p.scale));
  out += p.mask.order == Order::kCausal ? " + causal mask) v" : ") v";
  if (turning.rotation != Rotation::kNone)
    out +=
        turning.rotation == Rotation::kInterleaved ? ", rope on neighbours (2i, 2i+1)" : ", rope on halves (i, i+d/2)";
  if (p.mask.padded) out += fmt::format(", the last {} keys of the prompt hidden", p.mask.padded);
  return out;
}

Finding describe(const AttentionFormula& r, const AttentionFormula& c, const AttentionInputs& inputs, int64_t d) {
  const bool grouped = inputs.streams[static_cast<size_t>(inputs.own)].some_q()->size() !=
                       inputs.streams[static_cast<size_t>(inputs.own)].v->size();
  const Named named = difference(r, c, inputs, grouped, d);
  // The right result put in other places is said more plainly of the two results alone, where that explains it.
  AttentionFormula placed = r;
  placed.merge = c.merge, placed.row_shift = c.row_shift, placed.residual = c.residual;
  placed.merged_shift = c.merged_shift, placed.merged_backwards = c.merged_backwards;
  return {named.cause,
          fmt::format("reference: {}; yours: the same, but {}", words_of(r, d), difference_words(r, c, inputs, d)),
          named.fix,
          "",
          r.residual,
          c.residual,
          placed == c ? 1.4 : 0.8,
          0,
          Blame::kNone};
}

}  // namespace lockstep
