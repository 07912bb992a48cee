// What may be different about an attention: one change each, the likeliest first, since time may run out on large ones.
#include <algorithm>

#include "compare/families/attention_formula.h"

namespace lockstep {
namespace {

using Formula = AttentionFormula;

class Changes {
 public:
  explicit Changes(const Formula& base) : base_(base) {}
  template <typename Change>
  void add(const Change& change) {
    Formula p = base_;
    change(p);
    if (!p.same_as(base_)) list.push_back(p);
  }
  std::vector<Formula> list;

 private:
  const Formula& base_;
};

void add_rotations(Changes& to) {
  for (const Rotation rotation : {Rotation::kInterleaved, Rotation::kHalves, Rotation::kNone})
    to.add([&](Formula& p) { p.rotation = rotation; });
  to.add([](Formula& p) { p.sign = -1; });
  to.add([](Formula& p) { p.rotate_q = false; });
  to.add([](Formula& p) { p.rotate_k = false; });
  to.add([](Formula& p) { p.rotate_v = true; });
  to.add([](Formula& p) { p.tables_exchanged = true; });
  to.add([](Formula& p) { p.from_zero = true; });
  for (const int shift : {1, -1, 2, -2, 3, -3, 4, -4, 8, -8, 16, -16}) to.add([&](Formula& p) { p.shift = shift; });
  to.add([](Formula& p) { p.cos_sin = true; });
  to.add([](Formula& p) { p.backwards = true; });
  for (const double share : {0.5, 0.25, 0.75}) to.add([&](Formula& p) { p.rotated = share; });
  for (const double turns : {2.0, 0.5, 3.0}) to.add([&](Formula& p) { p.turns = turns; });
}

// The same mistakes made with q or with k alone, and rows of the table that come round again.
void add_rarer_rotations(Changes& to, const std::vector<Formula>& rotations) {
  for (const int shift : {1, -1, 2, -2, 3, -3, 4, -4}) to.add([&](Formula& p) { p.shift = shift, p.wraps = true; });
  std::vector<Formula> both = rotations;
  both.insert(both.end(), to.list.begin(), to.list.end());
  for (const Formula& change : both) {
    if (!change.rotate_q || !change.rotate_k || change.rotate_v || change.rotation == Rotation::kNone) continue;
    for (const int operand : {0, 1}) {
      to.list.push_back(change);
      to.list.back().only_operand = operand;
    }
  }
}

// Of the attention as a whole: no stream can have it alone.
void add_scores(Changes& to, const AttentionInputs& inputs, const Formula& r, int64_t d, int64_t width) {
  const double dd = static_cast<double>(d), dw = static_cast<double>(width);
  for (const double scale : {0.0, 1.0, 1 / dd, 1 / std::sqrt(dw), std::sqrt(dd), 1 / std::sqrt(dd / 2),
                             1 / std::sqrt(2 * dd), std::sqrt(1 / std::sqrt(dd))})
    to.add([&](Formula& p) { p.scale = scale; });
  // Before the masks: hiding all keys of the other stream is the same, and less plain.
  to.add([](Formula& p) { p.own_stream = true; });
  for (const Mask mask :
       {Mask::kNone, Mask::kCausal, Mask::kStrict, Mask::kStrictButFirst, Mask::kReverse, Mask::kOtherStream})
    if (mask != Mask::kOtherStream || inputs.streams.size() == 2) to.add([&](Formula& p) { p.mask = mask; });
  if (r.padded) {
    to.add([](Formula& p) { p.padded = 0; });
    to.add([](Formula& p) { p.mask = Mask::kInverted; });
  }
  for (const int keys : {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64}) {
    to.add([&](Formula& p) { p.hidden_last = keys; });
    to.add([&](Formula& p) { p.hidden_first = keys; });
    to.add([&](Formula& p) { p.window = keys; });
  }
  if (inputs.streams.size() == 2) {
    const int text = static_cast<int>(inputs.tokens_of(*inputs.streams[0].v, d));
    to.add([&](Formula& p) { p.hidden_first = text; });
  }
  for (const Weighting weighting : {Weighting::kPlain, Weighting::kSigmoid, Weighting::kOverQueries})
    to.add([&](Formula& p) { p.weighting = weighting; });
  for (const double cap : {50.0, 30.0, 20.0, 10.0, 5.0, 1.0}) to.add([&](Formula& p) { p.cap = cap; });
  to.add([](Formula& p) { p.tiled = true; });
  to.add([](Formula& p) { p.one_group = true; });
  for (int64_t shift = 1; shift < std::min<int64_t>(inputs.key_heads(d), 4); ++shift)
    to.add([&](Formula& p) { p.head_shift = static_cast<int>(shift); });
  for (const NumberFormat& format : half_formats()) {
    for (const auto held : {&Formula::weights, &Formula::scores, &Formula::powers})
      to.add([&](Formula& p) { p.*held = &format; });
    to.add([&](Formula& p) { p.scores = p.weights = &format; });
    // The whole of it in that format, by a kernel that sums in f32, or one step after the other.
    to.add([&](Formula& p) { p.rotated_inputs = &format; });
    to.add([&](Formula& p) { p.rotated_inputs = p.result = &format; });
    to.add([&](Formula& p) { p.rotated_inputs = p.powers = p.result = &format; });
    to.add([&](Formula& p) { p.rotated_inputs = p.scores = p.weights = p.result = &format; });
  }
  if (r.mask != Mask::kNone || r.padded) to.add([](Formula& p) { p.weighting = Weighting::kMaskedLate; });
  // The factor of the scores put on the result, or on both.
  const double factor = r.scale == 0 ? 1 / std::sqrt(dd) : r.scale;
  to.add([&](Formula& p) { p.scale = 1, p.result_factor = factor; });
  to.add([&](Formula& p) { p.result_factor = factor; });
}

void add_operands(Changes& to) {
  for (const NumberFormat& format : half_formats()) to.add([&](Formula& p) { p.inputs = &format; });
  to.add([](Formula& p) { p.early_q = true; });
  to.add([](Formula& p) { p.early_k = true; });
  to.add([](Formula& p) { p.early_q = p.early_k = true; });
  for (int order = 1; order < static_cast<int>(std::size(kQkvOrders)); ++order)
    to.add([&](Formula& p) { p.qkv = order; });
}

void add_rarer_operands(Changes& to, const AttentionInputs& inputs, double d) {
  to.add([](Formula& p) { p.unit_q = true; });
  to.add([](Formula& p) { p.unit_k = true; });
  to.add([](Formula& p) { p.unit_v = true; });
  to.add([](Formula& p) { p.unit_q = p.unit_k = true; });
  for (const int strided : {7, 1, 2, 4, 3, 6, 5}) to.add([&](Formula& p) { p.strided = strided; });
  // Another norm than its own, or its own without the weight: -1.
  for (int weight = -1; weight < static_cast<int>(inputs.norm_weights.size()); ++weight) {
    to.add([&](Formula& p) { p.early_q = p.unit_q = true, p.q_weight = weight; });
    to.add([&](Formula& p) { p.early_k = p.unit_k = true, p.k_weight = weight; });
  }
  if (inputs.streams.size() != 2) return;  // on the one stream these are the scale, or a factor of the result
  for (const double factor : {1 / std::sqrt(d), std::sqrt(d), 0.0, -1.0, 0.5, 2.0, 1 / d, d}) {
    to.add([&](Formula& p) { p.q_factor = factor; });
    to.add([&](Formula& p) { p.k_factor = factor; });
    to.add([&](Formula& p) { p.v_factor = factor; });
  }
}

// Other keys hidden than those that pad the prompt: any run of them.
void add_runs_of_hidden_keys(Changes& to, const AttentionInputs& inputs, const Formula& r, int64_t d) {
  const int text = static_cast<int>(inputs.tokens_of(*inputs.streams[0].v, d));
  if (!r.padded || text > 64) return;
  for (int from = 0; from < text; ++from)
    for (int count = 1; count <= std::min(text - from + (inputs.streams.size() == 2 ? 1 : 0), 32); ++count)
      to.add([&](Formula& p) { p.padded = 0, p.hidden_from = from, p.hidden_count = count; });
}

// Code for two streams is written twice: any of this may be wrong in one of them.
void append(std::vector<Formula>& to, const std::vector<Formula>& changes, bool streams) {
  for (const Formula& change : changes)
    for (const int stream : streams ? std::vector<int>{0, 1} : std::vector<int>{-1}) {
      to.push_back(change);
      to.back().only_stream = stream;
    }
}

}  // namespace

std::vector<Formula> attention_changes(const Formula& r, const AttentionInputs& inputs, int64_t d, int64_t width) {
  Changes rotations(r), scores(r), operands(r), rarer_rotations(r), rarer(r), runs(r);
  if (inputs.has_tables()) add_rotations(rotations), add_rarer_rotations(rarer_rotations, rotations.list);
  add_scores(scores, inputs, r, d, width);
  add_operands(operands);
  add_rarer_operands(rarer, inputs, static_cast<double>(d));
  add_runs_of_hidden_keys(runs, inputs, r, d);
  std::vector<Formula> out;
  append(out, rotations.list, false), append(out, scores.list, false), append(out, operands.list, false);
  const bool two = inputs.streams.size() == 2;
  if (two) append(out, rotations.list, true), append(out, operands.list, true), append(out, rarer.list, true);
  append(out, rarer.list, false), append(out, runs.list, false), append(out, rarer_rotations.list, false);
  if (two) append(out, rarer_rotations.list, true);
  return out;
}

}  // namespace lockstep
