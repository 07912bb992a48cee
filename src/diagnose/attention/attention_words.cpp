// A formula of attention in words, and what differs between two.
#include <fmt/format.h>

#include <algorithm>

#include "diagnose/attention/attention_formula.h"
#include "diagnose/rotary/rotary_turning.h"
#include "diagnose/search/fit.h"

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

}  // namespace

// Operand by operand: those with the same difference are said together.
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

}  // namespace lockstep
