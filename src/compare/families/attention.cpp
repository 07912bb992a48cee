// out = softmax(rope(q) rope(k)^T * scale + mask) v, from the recorded projections and norms. Rotary embedding is part
// of it: no module shows its result.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "compare/families/attention_formula.h"
#include "compare/families/fit.h"

namespace lockstep {
namespace {

constexpr int64_t kManyRows = 1024;

AttentionFormula plain_formula(Rotation rotation, bool causal, double scale) {
  AttentionFormula p;
  for (auto& stream : p.of)
    for (const size_t operand : {0, 1}) stream[operand].turning.rotation = rotation;
  p.mask.order = causal ? Order::kCausal : Order::kAny, p.scale = scale;
  return p;
}

// The reference: few forms exist.
AttentionFormula fit_reference(const AttentionInputs& inputs, const Attention& attention, double tolerance) {
  AttentionFormula best;
  const auto consider = [&](AttentionFormula p) {
    p.residual = attention.measure(p);
    if (p.residual < best.residual) best = p;
    return best.residual <= tolerance;
  };
  for (const Rotation rotation : {Rotation::kInterleaved, Rotation::kHalves, Rotation::kNone}) {
    if (rotation != Rotation::kNone && !inputs.has_tables()) continue;
    for (const bool causal : {false, true})
      for (const double scale : {0.0, 1.0})
        if (consider(plain_formula(rotation, causal, scale))) return best;
  }
  // A prompt shorter than the batch's longest is padded, and what pads it is hidden.
  const int64_t text = inputs.batch > 1 ? inputs.tokens_of(*inputs.streams[0].v, 1) : 0;
  for (const Rotation rotation : {Rotation::kInterleaved, Rotation::kHalves, Rotation::kNone})
    for (const bool causal : {false, true})
      for (int padded = 1; padded < std::min<int64_t>(text, 64); ++padded) {
        if (rotation != Rotation::kNone && !inputs.has_tables()) continue;
        AttentionFormula p = plain_formula(rotation, causal, 0);
        p.mask.padded = padded;
        if (consider(p)) return best;
      }
  return best;
}

// A number of any size that the formula has none of, or another: on the scores, on one stream's q, k or v, ...
struct FreeNumber {
  std::function<void(AttentionFormula&, double)> set;
  bool negative_too = false;
};

std::vector<FreeNumber> free_numbers(const AttentionFormula& r, size_t streams) {
  std::vector<FreeNumber> out{{[](AttentionFormula& p, double x) { p.scale = x; }},
                              {[](AttentionFormula& p, double x) { p.zero_keys = x; }}};
  if (r.mask.hides_something())
    for (const Hiding hiding : {Hiding::kAdded, Hiding::kReplaced})
      out.push_back({[=](AttentionFormula& p, double x) { p.mask.hiding = hiding, p.mask.value = x; }, true});
  if (streams == 2)
    for (const size_t operand : {0, 1, 2})
      for (const size_t s : {0, 1})
        out.push_back({[=](AttentionFormula& p, double x) { p.of[s][operand].factor = x; }, true});
  out.push_back({[](AttentionFormula& p, double x) { p.cap = x; }});
  return out;
}

template <typename Late>
AttentionFormula best_number(const Attention& attention, const AttentionFormula& r, const FreeNumber& number,
                             const Late& late) {
  AttentionFormula best = r;
  best.residual = INFINITY;
  double chosen = 1;
  const auto consider = [&](double x) {
    AttentionFormula p = r;
    number.set(p, x), p.residual = attention.measure(p);
    if (p.residual < best.residual) best = p, chosen = x;
  };
  for (double x = 1e-3; x < 1e3 && !late(); x *= 1.3) {
    consider(x);
    if (number.negative_too) consider(-x);
  }
  for (double step = 1.15; step > 1.00002 && !late(); step = std::sqrt(step)) {
    const double middle = chosen;
    consider(middle * step), consider(middle / step);
  }
  return best;
}

// One change; else a number of any size; else the most promising changes with one more each.
AttentionFormula best_change(const Case& failing, const Attention& attention,
                             const std::vector<AttentionChange>& changes, const AttentionFormula& r, size_t streams) {
  const auto started = std::chrono::steady_clock::now();
  const auto late = [&] { return std::chrono::steady_clock::now() - started > std::chrono::seconds(2); };
  attention.measure(r);  // the attention keeps what this made, and most changes leave most of it as it is
  std::vector<AttentionFormula> singles;
  for (const AttentionChange& change : changes) {  // the likeliest come first
    AttentionFormula p = r;
    change(p);
    p.residual = late() ? INFINITY : attention.measure(p);
    singles.push_back(p);
  }
  const auto by_residual = [](const AttentionFormula& a, const AttentionFormula& b) { return a.residual < b.residual; };
  AttentionFormula best = *std::min_element(singles.begin(), singles.end(), by_residual);
  // Some are the same by other words (a negative angle, positions in reverse): the plainest comes first.
  best = *std::find_if(singles.begin(), singles.end(),
                       [&](const AttentionFormula& p) { return p.residual <= 1.5 * best.residual; });
  if (failing.explains_candidate(best.residual) || late()) return best;
  for (const FreeNumber& number : free_numbers(r, streams)) {
    const AttentionFormula free = best_number(attention, r, number, late);
    if (free.residual < best.residual) best = free;
    if (failing.explains_candidate(best.residual) || late()) return best;
  }
  std::vector<size_t> order(singles.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return singles[a].residual < singles[b].residual; });
  constexpr size_t kMostPromising = 6;
  for (size_t i = 0; i < std::min(order.size(), kMostPromising); ++i)
    for (const AttentionChange& other : changes) {
      if (late()) return best;
      AttentionFormula p = singles[order[i]];
      other(p);
      p.residual = attention.measure(p);
      if (p.residual < best.residual) best = p;
      if (failing.explains(best.residual)) return best;
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
    const AttentionSample sample = attention_sample(y_c, y_r, d, 12, 4);
    Attention r_attention(r_in, y_r, d, sample), c_attention(c_in, y_c, d, sample);
    // Over many keys a few rows of one head are enough to choose by; the choice is measured on more.
    Attention chooser =
        y_r.rows() > kManyRows ? Attention(c_in, y_c, d, attention_sample(y_c, y_r, d, 4, 1)) : c_attention;
    const AttentionFormula r = fit_reference(r_in, r_attention, failing.tolerance);
    if (!failing.explains(r.residual)) continue;
    const double with_reference = c_attention.measure(r);
    if (failing.note_local(with_reference)) return;
    AttentionFormula best = best_change(failing, chooser, attention_changes(r, c_in, d, width), r, c_in.streams.size());
    best.residual = c_attention.measure(best);
    if (!failing.explains_candidate(best.residual) || !failing.is_better(best.residual, with_reference)) return;
    Finding finding = describe(r, best, c_in, d);
    finding.look_at = parent_of(failing.module) + ", between its projections and " + failing.module;
    out.push_back(std::move(finding));
    return;
  }
}

}  // namespace lockstep
