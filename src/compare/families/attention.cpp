// out = softmax(rope(q) rope(k)^T * scale + mask) v, from the recorded projections and norms. Rotary embedding is part
// of it: no module shows its result.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "compare/families/attention_formula.h"
#include "compare/families/fit.h"

namespace lockstep {
namespace {

constexpr int64_t kManyRows = 1024;

// The reference: few forms exist.
AttentionFormula fit_reference(const AttentionInputs& inputs, const Attention& attention, double tolerance) {
  AttentionFormula best;
  for (const Rotation rotation : {Rotation::kInterleaved, Rotation::kHalves, Rotation::kNone}) {
    if (rotation != Rotation::kNone && !inputs.has_tables()) continue;
    for (const bool causal : {false, true})
      for (const double scale : {0.0, 1.0}) {
        AttentionFormula p;
        p.rotation = rotation, p.mask = causal ? Mask::kCausal : Mask::kNone, p.scale = scale;
        p.residual = attention.measure(p);
        if (p.residual < best.residual) best = p;
        if (best.residual <= tolerance) return best;
      }
  }
  // A prompt shorter than the batch's longest is padded, and what pads it is hidden.
  const AttentionFormula whole = best;
  const int64_t text = inputs.batch > 1 ? inputs.tokens_of(*inputs.streams[0].v, 1) : 0;
  for (const Rotation rotation : {Rotation::kInterleaved, Rotation::kHalves, Rotation::kNone})
    for (const bool causal : {false, true})
      for (int padded = 1; padded < std::min<int64_t>(text, 64); ++padded) {
        if (rotation != Rotation::kNone && !inputs.has_tables()) continue;
        AttentionFormula p;
        p.rotation = rotation, p.mask = causal ? Mask::kCausal : Mask::kNone, p.padded = padded;
        p.residual = attention.measure(p);
        if (p.residual < best.residual) best = p;
        if (best.residual <= tolerance) return best;
      }
  return best.residual < whole.residual ? best : whole;
}

// Both changes of `r` together.
AttentionFormula combined(const AttentionFormula& r, const AttentionFormula& a, const AttentionFormula& b) {
  AttentionFormula out = a;
  const auto take = [&](auto AttentionFormula::*field) {
    if (b.*field != r.*field) out.*field = b.*field;
  };
  take(&AttentionFormula::rotation), take(&AttentionFormula::sign), take(&AttentionFormula::rotate_q),
      take(&AttentionFormula::rotate_k);
  take(&AttentionFormula::rotate_v), take(&AttentionFormula::tables_exchanged), take(&AttentionFormula::shift),
      take(&AttentionFormula::scale);
  take(&AttentionFormula::mask), take(&AttentionFormula::hidden_first), take(&AttentionFormula::hidden_last),
      take(&AttentionFormula::window), take(&AttentionFormula::padded);
  take(&AttentionFormula::tiled), take(&AttentionFormula::early_q), take(&AttentionFormula::early_k),
      take(&AttentionFormula::qkv);
  take(&AttentionFormula::own_stream), take(&AttentionFormula::only_stream), take(&AttentionFormula::cos_sin),
      take(&AttentionFormula::backwards);
  take(&AttentionFormula::rotated), take(&AttentionFormula::weighting), take(&AttentionFormula::cap),
      take(&AttentionFormula::head_shift);
  take(&AttentionFormula::wraps), take(&AttentionFormula::from_zero), take(&AttentionFormula::strided),
      take(&AttentionFormula::q_factor);
  take(&AttentionFormula::k_factor), take(&AttentionFormula::v_factor), take(&AttentionFormula::unit_q);
  take(&AttentionFormula::unit_k), take(&AttentionFormula::unit_v);
  take(&AttentionFormula::only_operand), take(&AttentionFormula::one_group), take(&AttentionFormula::q_weight);
  take(&AttentionFormula::k_weight), take(&AttentionFormula::hidden_from), take(&AttentionFormula::hidden_count);
  take(&AttentionFormula::inputs), take(&AttentionFormula::weights), take(&AttentionFormula::turns);
  take(&AttentionFormula::scores), take(&AttentionFormula::powers), take(&AttentionFormula::result_factor);
  take(&AttentionFormula::rotated_inputs), take(&AttentionFormula::result);
  return out;
}

// A factor of any size: on the scores, or on one stream's q, k or v.
struct Free {
  double AttentionFormula::*factor;
  int stream;
};

std::vector<Free> free_factors(size_t streams) {
  std::vector<Free> out{{&AttentionFormula::scale, -1}};
  if (streams == 2)
    for (const auto factor : {&AttentionFormula::q_factor, &AttentionFormula::k_factor, &AttentionFormula::v_factor})
      for (const int stream : {0, 1}) out.push_back({factor, stream});
  return out;
}

template <typename Late>
AttentionFormula best_factor(const Attention& attention, const AttentionFormula& r, const Free& free,
                             const Late& late) {
  AttentionFormula best = r;
  best.residual = INFINITY;
  const auto consider = [&](double factor) {
    AttentionFormula p = r;
    p.*free.factor = factor, p.only_stream = free.stream, p.residual = attention.measure(p);
    if (p.residual < best.residual) best = p;
  };
  for (double factor = 1e-3; factor < 1e3 && !late(); factor *= 1.3) {
    consider(factor);
    if (free.stream >= 0) consider(-factor);
  }
  for (double step = 1.15; step > 1.00002 && !late(); step = std::sqrt(step)) {
    const double middle = best.*free.factor;
    consider(middle * step), consider(middle / step);
  }
  return best;
}

// One change; else a scale of any size; else the most promising changes with one more each.
AttentionFormula best_change(const Case& failing, const Attention& attention, std::vector<AttentionFormula> changes,
                             const AttentionFormula& r, size_t streams) {
  const auto started = std::chrono::steady_clock::now();
  const auto late = [&] { return std::chrono::steady_clock::now() - started > std::chrono::seconds(2); };
  const auto by_residual = [](const AttentionFormula& a, const AttentionFormula& b) { return a.residual < b.residual; };
  for (AttentionFormula& p : changes)
    p.residual = late() ? INFINITY : attention.measure(p);  // the likeliest come first
  AttentionFormula best = *std::min_element(changes.begin(), changes.end(), by_residual);
  // Some are the same by other words (a negative angle, positions in reverse): the plainest comes first.
  best = *std::find_if(changes.begin(), changes.end(),
                       [&](const AttentionFormula& p) { return p.residual <= 1.5 * best.residual; });
  if (failing.explains_candidate(best.residual) || late()) return best;
  for (const Free& factor : free_factors(streams)) {
    const AttentionFormula free = best_factor(attention, r, factor, late);
    if (free.residual < best.residual) best = free;
    if (failing.explains_candidate(best.residual) || late()) return best;
  }
  std::sort(changes.begin(), changes.end(), by_residual);
  const std::vector<AttentionFormula> singles = changes;
  for (size_t i = 0; i < std::min<size_t>(singles.size(), 4); ++i)
    for (const AttentionFormula& other : singles) {
      if (late()) return best;
      AttentionFormula p = combined(r, singles[i], other);
      p.residual = attention.measure(p);
      if (p.residual < best.residual) best = p;
    }
  return best;
}

}  // namespace

void search_attention(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || !std::isfinite(failing.error)) return;
  const AttentionInputs r_in(failing, false), c_in(failing, true);
  if (!r_in.complete() || !c_in.complete() || r_in.streams.size() != c_in.streams.size()) return;
  Values y_r = batch_item(failing.r, r_in.item, r_in.batch), y_c = batch_item(failing.c, r_in.item, r_in.batch);
  if (r_in.picture) y_r = channels_last(y_r, 1), y_c = channels_last(y_c, 1);
  const int64_t width = y_r.last();
  for (const int64_t d : r_in.head_sizes(width)) {
    Attention r_attention(r_in, y_r, d), c_attention(c_in, y_c, d);
    // Over many keys a few rows of one head are enough to choose by; the choice is measured on more.
    Attention chooser = y_r.rows() > kManyRows ? Attention(c_in, y_c, d, 4, 1) : c_attention;
    const AttentionFormula r = fit_reference(r_in, r_attention, failing.tolerance);
    c_attention.start_from(r), chooser.start_from(r);
    if (!failing.explains(r.residual)) continue;
    const double with_reference = c_attention.measure(r);
    if (failing.note_local(with_reference)) return;
    AttentionFormula best = best_change(failing, chooser, attention_changes(r, c_in, d, width), r, c_in.streams.size());
    best.residual = c_attention.measure(best);
    if (!failing.explains_candidate(best.residual) || !failing.is_better(best.residual, with_reference)) return;
    Finding finding = describe(r, best, d);
    finding.look_at = parent_of(failing.module) + ", between its projections and " + failing.module;
    out.push_back(std::move(finding));
    return;
  }
}

}  // namespace lockstep
