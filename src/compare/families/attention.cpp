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

std::vector<AttentionFormula> alternatives(const AttentionFormula& r, const AttentionInputs& inputs, int64_t d, int64_t width) {
  std::vector<AttentionFormula> out;
  const auto add = [&](auto&& change) {
    AttentionFormula p = r;
    change(p);
    if (!p.same_as(r)) out.push_back(p);
  };
  if (inputs.has_tables()) {
    for (const Rotation rotation : {Rotation::kInterleaved, Rotation::kHalves, Rotation::kNone})
      add([&](AttentionFormula& p) { p.rotation = rotation; });
    add([](AttentionFormula& p) { p.sign = -1; });
    add([](AttentionFormula& p) { p.rotate_q = false; });
    add([](AttentionFormula& p) { p.rotate_k = false; });
    add([](AttentionFormula& p) { p.rotate_v = true; });
    add([](AttentionFormula& p) { p.tables_exchanged = true; });
    for (const int shift : {1, -1, 2, -2, 3, -3, 4, -4, 8, -8, 16, -16}) {
      add([&](AttentionFormula& p) { p.shift = shift; });
      add([&](AttentionFormula& p) { p.shift = shift, p.wraps = true; });
    }
    add([](AttentionFormula& p) { p.cos_sin = true; });
    add([](AttentionFormula& p) { p.backwards = true; });
    for (const double share : {0.5, 0.25, 0.75}) add([&](AttentionFormula& p) { p.rotated = share; });
    for (const double turns : {2.0, 0.5, 3.0}) add([&](AttentionFormula& p) { p.turns = turns; });
  }
  const double dd = static_cast<double>(d), dw = static_cast<double>(width);
  for (const double scale : {0.0, 1.0, 1 / dd, 1 / std::sqrt(dw), std::sqrt(dd), 1 / std::sqrt(dd / 2),
                             1 / std::sqrt(2 * dd), std::sqrt(1 / std::sqrt(dd))})
    add([&](AttentionFormula& p) { p.scale = scale; });
  // Before the masks: hiding all keys of the other stream is the same, and less plain.
  add([](AttentionFormula& p) { p.own_stream = true; });
  for (const Mask mask : {Mask::kNone, Mask::kCausal, Mask::kStrict, Mask::kReverse, Mask::kOtherStream})
    if (mask != Mask::kOtherStream || inputs.streams.size() == 2) add([&](AttentionFormula& p) { p.mask = mask; });
  if (r.padded) add([](AttentionFormula& p) { p.padded = 0; });
  for (const int keys : {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64}) {
    add([&](AttentionFormula& p) { p.hidden_last = keys; });
    add([&](AttentionFormula& p) { p.hidden_first = keys; });
    add([&](AttentionFormula& p) { p.window = keys; });
  }
  if (inputs.streams.size() == 2) {
    const int text = static_cast<int>(inputs.tokens_of(*inputs.streams[0].v, d));
    add([&](AttentionFormula& p) { p.hidden_first = text; });
  }
  for (const Weighting weighting : {Weighting::kPlain, Weighting::kSigmoid, Weighting::kOverQueries})
    add([&](AttentionFormula& p) { p.weighting = weighting; });
  for (const double cap : {50.0, 30.0, 20.0, 10.0, 5.0, 1.0}) add([&](AttentionFormula& p) { p.cap = cap; });
  for (int64_t shift = 1; shift < std::min<int64_t>(inputs.key_heads(d), 4); ++shift)
    add([&](AttentionFormula& p) { p.head_shift = static_cast<int>(shift); });
  for (const Coarse format : {Coarse::kBf16, Coarse::kF16}) {
    add([&](AttentionFormula& p) { p.inputs = format; });
    add([&](AttentionFormula& p) { p.weights = format; });
    add([&](AttentionFormula& p) { p.inputs = p.weights = format; });
  }
  add([](AttentionFormula& p) { p.tiled = true; });
  add([](AttentionFormula& p) { p.early_q = true; });
  add([](AttentionFormula& p) { p.early_k = true; });
  add([](AttentionFormula& p) { p.early_q = p.early_k = true; });
  add([](AttentionFormula& p) { p.unit_q = true; });
  add([](AttentionFormula& p) { p.unit_k = true; });
  add([](AttentionFormula& p) { p.unit_v = true; });
  add([](AttentionFormula& p) { p.unit_q = p.unit_k = true; });
  for (const int strided : {7, 1, 2, 4, 3, 6, 5}) add([&](AttentionFormula& p) { p.strided = strided; });
  for (int order = 1; order < static_cast<int>(std::size(kQkvOrders)); ++order) add([&](AttentionFormula& p) { p.qkv = order; });
  if (inputs.streams.size() != 2) return out;
  for (const double factor : {1 / std::sqrt(dd), std::sqrt(dd), 0.0, -1.0, 0.5, 2.0, 1 / dd, dd}) {
    add([&](AttentionFormula& p) { p.q_factor = factor; });  // for both streams this is the scale, or a plain factor
    add([&](AttentionFormula& p) { p.k_factor = factor; });
    add([&](AttentionFormula& p) { p.v_factor = factor; });
  }
  // Code for two streams is written twice: any of this may be wrong in one of them.
  const std::vector<AttentionFormula> both = out;
  for (const AttentionFormula& change : both) {
    AttentionFormula global = change;
    global.mask = r.mask, global.scale = r.scale, global.tiled = r.tiled, global.own_stream = r.own_stream;
    global.hidden_first = r.hidden_first, global.hidden_last = r.hidden_last, global.window = r.window;
    global.padded = r.padded;
    global.weighting = r.weighting, global.cap = r.cap, global.head_shift = r.head_shift, global.weights = r.weights;
    if (!global.same_as(change)) continue;  // a change of the attention as a whole
    for (const int stream : {0, 1}) {
      AttentionFormula limited = change;
      limited.only_stream = stream;
      out.push_back(limited);
    }
  }
  return out;
}

// Both changes of `r` together.
AttentionFormula combined(const AttentionFormula& r, const AttentionFormula& a, const AttentionFormula& b) {
  AttentionFormula out = a;
  const auto take = [&](auto AttentionFormula::*field) {
    if (b.*field != r.*field) out.*field = b.*field;
  };
  take(&AttentionFormula::rotation), take(&AttentionFormula::sign), take(&AttentionFormula::rotate_q), take(&AttentionFormula::rotate_k);
  take(&AttentionFormula::rotate_v), take(&AttentionFormula::tables_exchanged), take(&AttentionFormula::shift), take(&AttentionFormula::scale);
  take(&AttentionFormula::mask), take(&AttentionFormula::hidden_first), take(&AttentionFormula::hidden_last), take(&AttentionFormula::window),
      take(&AttentionFormula::padded);
  take(&AttentionFormula::tiled), take(&AttentionFormula::early_q), take(&AttentionFormula::early_k), take(&AttentionFormula::qkv);
  take(&AttentionFormula::own_stream), take(&AttentionFormula::only_stream), take(&AttentionFormula::cos_sin), take(&AttentionFormula::backwards);
  take(&AttentionFormula::rotated), take(&AttentionFormula::weighting), take(&AttentionFormula::cap), take(&AttentionFormula::head_shift);
  take(&AttentionFormula::wraps), take(&AttentionFormula::strided), take(&AttentionFormula::q_factor);
  take(&AttentionFormula::k_factor), take(&AttentionFormula::v_factor), take(&AttentionFormula::unit_q);
  take(&AttentionFormula::unit_k), take(&AttentionFormula::unit_v);
  take(&AttentionFormula::inputs), take(&AttentionFormula::weights), take(&AttentionFormula::turns);
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
AttentionFormula best_change(const Case& failing, const Attention& attention, std::vector<AttentionFormula> changes, const AttentionFormula& r, size_t streams) {
  const auto started = std::chrono::steady_clock::now();
  const auto late = [&] { return std::chrono::steady_clock::now() - started > std::chrono::seconds(2); };
  const auto by_residual = [](const AttentionFormula& a, const AttentionFormula& b) { return a.residual < b.residual; };
  for (AttentionFormula& p : changes) p.residual = late() ? INFINITY : attention.measure(p);  // the likeliest come first
  AttentionFormula best = *std::min_element(changes.begin(), changes.end(), by_residual);
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
    const AttentionFormula r = fit_reference(r_in, r_attention, failing.tolerance);
    c_attention.start_from(r);
    if (!failing.explains(r.residual)) continue;
    const double with_reference = c_attention.measure(r);
    if (failing.note_local(with_reference)) return;
    const AttentionFormula best = best_change(failing, c_attention, alternatives(r, c_in, d, width), r, c_in.streams.size());
    if (!failing.explains_candidate(best.residual) || !failing.is_better(best.residual, with_reference)) return;
    Finding finding = describe(r, best, d);
    finding.look_at = parent_of(failing.module) + ", between its projections and " + failing.module;
    out.push_back(std::move(finding));
    return;
  }
}

}  // namespace lockstep
