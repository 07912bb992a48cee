// out = softmax(rope(q) rope(k)^T * scale + mask) v, from the recorded projections and norms. Rotary embedding is part
// of it: no module shows its result.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "compare/axis_words.h"
#include "compare/families/attention_formula.h"
#include "compare/families/fit.h"
#include "compare/families/rotary_turning.h"

namespace lockstep {
namespace {

constexpr int64_t kManyRows = 1024;
constexpr std::chrono::milliseconds kTimeForAll{2000}, kTimeForPart{500};

// Of this thread: a machine that is busy otherwise changes no answer.
std::chrono::nanoseconds worked() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

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
  // Halves of each axis's part turn together.
  if (inputs.has_tables() && inputs.variants().axes().size() > 1)
    for (const bool causal : {false, true}) {
      AttentionFormula p = plain_formula(Rotation::kInterleaved, causal, 0);
      for (auto& stream : p.of)
        for (const size_t operand : {0, 1})
          stream[operand].turning = with_halves_of_axes(stream[operand].turning, inputs.variants().axes());
      if (consider(p)) return best;
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
  if (r.of[0][0].turning.rotation != Rotation::kNone)
    out.push_back({[](AttentionFormula& p, double x) {
      for (auto& stream : p.of) stream[0].turning.turns = stream[1].turning.turns = x;
    }});
  // Cosines in place of products, with a scale of their own.
  out.push_back({[](AttentionFormula& p, double x) {
    p.scale = x;
    for (auto& stream : p.of) stream[0].unit = stream[1].unit = Unit::kLength;
  }});
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

struct Changes {
  std::vector<AttentionChange> usual, rarer;
};

// One change; else a number of any size; else one of the rarer changes; else the most promising changes with one more
// each.
AttentionFormula best_change(const Case& failing, const Attention& attention, const Changes& changes,
                             const AttentionFormula& r, size_t streams, std::chrono::milliseconds most) {
  std::chrono::nanoseconds started = worked();
  const auto late = [&] { return worked() - started > most; };
  attention.measure(r);  // the attention keeps what this made, and most changes leave most of it as it is
  std::vector<AttentionFormula> singles;
  const auto try_all = [&](const std::vector<AttentionChange>& list) {
    for (const AttentionChange& change : list) {  // the likeliest come first
      AttentionFormula p = r;
      change(p);
      p.residual = late() ? INFINITY : attention.measure(p);
      singles.push_back(p);
    }
    double least = INFINITY;
    for (const AttentionFormula& p : singles) least = std::min(least, p.residual);
    // Some are the same by other words (a negative angle, positions in reverse): the plainest comes first.
    return *std::find_if(singles.begin(), singles.end(),
                         [&](const AttentionFormula& p) { return p.residual <= 1.5 * least; });
  };
  AttentionFormula best = try_all(changes.usual);
  const auto is_exact = [&] { return best.residual <= std::max(2 * failing.tolerance, failing.floor); };
  if (is_exact() || (late() && failing.explains_candidate(best.residual))) return best;
  if (AttentionFormula hidden = attention.with_hidden_keys(r, late); hidden.residual < 0.35 * best.residual) {
    const AttentionFormula other = std::exchange(best, hidden);
    if (is_exact()) return best;
    best = other;  // of so many choices nothing less is an answer
  }
  // A constant that nearly fits is no answer where some number fits.
  for (const FreeNumber& number : free_numbers(r, streams)) {
    if (is_exact() || late()) break;
    const AttentionFormula free = best_number(attention, r, number, late);
    if (free.residual < 0.35 * best.residual) best = free;
  }
  if (is_exact()) return best;
  if (late()) started = worked() - most + most / 4;  // where tokens are many the usual changes took all the time
  if (const AttentionFormula rare = try_all(changes.rarer); rare.residual < 0.35 * best.residual) best = rare;
  if (failing.explains_candidate(best.residual)) return best;
  std::vector<size_t> order(singles.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return singles[a].residual < singles[b].residual; });
  for (size_t i = 0; i < std::min<size_t>(order.size(), 3) && !late(); ++i) {
    const AttentionFormula free = best_number(attention, singles[order[i]], free_numbers(r, streams)[0], late);
    if (free.residual < best.residual) best = free;
    if (failing.explains_candidate(best.residual)) return best;
  }
  constexpr size_t kMostPromising = 6;
  for (size_t i = 0; i < std::min(order.size(), kMostPromising); ++i)
    for (const AttentionChange& other : changes.usual) {
      if (late()) return best;
      AttentionFormula p = singles[order[i]];
      other(p);
      p.residual = attention.measure(p);
      if (p.residual < best.residual) best = p;
      if (failing.explains(best.residual)) return best;
    }
  return best;
}

// The heads, or the rows, in which the two results differ; empty when nearly all do, or hardly any.
std::vector<int64_t> differing_slices(const Values& a, const Values& b, int64_t head_size, bool heads,
                                      double tolerance) {
  constexpr double kMostOfThem = 0.76;  // a larger share is no part
  const int64_t count = heads ? a.last() / head_size : a.rows();
  std::vector<double> dd(static_cast<size_t>(count)), bb(static_cast<size_t>(count));
  for (int64_t row = 0; row < a.rows(); ++row)
    for (int64_t j = 0; j < a.last(); ++j) {
      const double y = b.row(row)[static_cast<size_t>(j)], off = a.row(row)[static_cast<size_t>(j)] - y;
      const size_t at = static_cast<size_t>(heads ? j / head_size : row);
      dd[at] += off * off, bb[at] += y * y;
    }
  std::vector<int64_t> out;
  for (size_t i = 0; i < dd.size(); ++i)
    if (std::sqrt(dd[i]) > 2 * tolerance * std::sqrt(bb[i])) out.push_back(static_cast<int64_t>(i));
  return static_cast<double>(out.size()) > kMostOfThem * static_cast<double>(count) ? std::vector<int64_t>{} : out;
}

std::string slice_words(const std::vector<int64_t>& part, int64_t count, const char* what) {
  std::vector<bool> marked(static_cast<size_t>(count));
  for (const int64_t i : part) marked[static_cast<size_t>(i)] = true;
  const std::string words = index_set_words(what, marked);
  return words.empty() ? fmt::format("{} of {} {}s", part.size(), count, what) : words;
}

// What one item of a batch does: the reference's formula for it and the candidate's.
struct ExplainedItem {
  int64_t item = 0;
  AttentionFormula r, c;
  std::string where;  // the part of it that differs; empty: all
};

// The item in which the two sides differ most, or the whole where there is no batch.
std::optional<ExplainedItem> explain_item(Case& failing, const AttentionInputs& r_in, AttentionInputs& c_in, int64_t d,
                                          bool& is_reference_known) {
  Values y_r = batch_item(failing.r, r_in.item, r_in.batch), y_c = batch_item(failing.c, r_in.item, r_in.batch);
  if (r_in.picture) y_r = channels_last(y_r, 1), y_c = channels_last(y_c, 1);
  const int64_t width = y_r.last();
  const AttentionSample sample = attention_sample(y_c, y_r, d, 12, 4);
  Attention r_attention(r_in, y_r, d, sample), c_attention(c_in, y_c, d, sample);
  // Over many keys a few rows of one head are enough to choose by; the choice is measured on more.
  Attention chooser =
      y_r.rows() > kManyRows ? Attention(c_in, y_c, d, attention_sample(y_c, y_r, d, 3, 1)) : c_attention;
  const AttentionFormula r = fit_reference(r_in, r_attention, failing.tolerance);
  is_reference_known = failing.explains(r.residual);
  if (!is_reference_known) return std::nullopt;
  const double with_reference = c_attention.measure(r);
  if (failing.note_local(with_reference)) return std::nullopt;
  c_in.find_other_calls(failing);
  const Changes changes{attention_changes(r, c_in, d, width), rarer_attention_changes(r, c_in, d, width)};
  AttentionFormula best = best_change(failing, chooser, changes, r, c_in.streams.size(), kTimeForAll);
  best.residual = c_attention.measure(best);
  std::string where;
  // Some heads or some tokens alone may be made otherwise.
  for (const bool heads : {true, false}) {
    if (failing.explains_candidate(best.residual) && failing.is_better(best.residual, with_reference)) break;
    const std::vector<int64_t> part = differing_slices(y_c, y_r, d, heads, failing.tolerance);
    if (part.empty()) continue;
    AttentionSample of_part = sample;
    std::vector<int64_t>& looked_at = heads ? of_part.heads : of_part.rows;
    looked_at.clear();
    for (const int64_t i : sample_indices(static_cast<int64_t>(part.size()), heads ? 3 : 10))
      looked_at.push_back(part[static_cast<size_t>(i)]);
    const Attention attention(c_in, y_c, d, of_part);
    best = best_change(failing, attention, changes, r, c_in.streams.size(), kTimeForPart);
    best.residual = attention.measure(best);
    where = slice_words(part, heads ? width / d : y_r.rows(), heads ? "head" : "token") + "; there ";
  }
  if (!failing.explains_candidate(best.residual) || !failing.is_better(best.residual, with_reference))
    return std::nullopt;
  return ExplainedItem{r_in.item, r, best, where};
}

// The failing pair with one item of its batch as `from` has it, the others right.
Case with_item_alone(const Case& failing, const Values& from, int64_t item) {
  Values c = failing.r;
  const int64_t size = c.size() / c.shape[0];
  std::copy_n(from.v.begin() + item * size, size, c.v.begin() + item * size);
  return failing.with_pair(failing.r, std::move(c));
}

// Do two masks hide the same keys? Asked of the first query, the last and one between.
bool hide_the_same(const MaskFormula& a, const MaskFormula& b, const JointTokens& tokens) {
  for (const int64_t query : {int64_t{0}, tokens.all / 2, tokens.all - 1})
    for (int64_t key = 0; key < tokens.all; ++key)
      if (is_hidden(a, tokens, query, key) != is_hidden(b, tokens, query, key)) return false;
  return true;
}

// Whose mask is it? The reference's own formula of that item hides what the candidate hides from another.
bool is_mask_of_item(const Case& failing, const MaskFormula& mask, int64_t item, int64_t d) {
  Values other = failing.r;
  for (float& value : other.v) value += 1;  // makes it the item that is looked at
  Case looked_at = with_item_alone(failing, other, item);
  const AttentionInputs in(looked_at, false);
  const Values y = batch_item(failing.r, item, failing.r.shape[0]);
  if (!in.complete() || in.picture || in.item != item) return false;
  const Attention attention(in, y, d, attention_sample(y, y, d, 12, 4));
  const AttentionFormula r = fit_reference(in, attention, failing.tolerance);
  return failing.explains(r.residual) && hide_the_same(mask, r.mask, attention.tokens());
}

// Masks differ from item to item. Where one item is shown too much and another too little, the mask is there and is the
// wrong one; and it may be another item's.
void look_at_other_masks(const Case& failing, const ExplainedItem& worst, int64_t d, Finding& finding) {
  constexpr int64_t kMostLookedAt = 4;
  const int64_t batch = failing.r.shape[0];
  const std::string of_worst = finding.explanation;
  for (int64_t i = 0, looked = 0; i < batch && looked < kMostLookedAt; ++i) {
    if (i == worst.item) continue;
    ++looked;
    if (worst.c.mask.hides_something() && is_mask_of_item(failing, worst.c.mask, i, d)) {
      finding.cause = "attention.mask", finding.fix = "give each item of the batch its own mask";
      finding.explanation = fmt::format("item {} of the batch has the mask of item {}; {}", worst.item, i, of_worst);
      return;
    }
    Case alone = with_item_alone(failing, failing.c, i);
    if (alone.explains(alone.error)) continue;
    const AttentionInputs r_in(alone, false);
    AttentionInputs c_in(alone, true);
    bool known = false;
    const auto other = r_in.complete() && c_in.complete() ? explain_item(alone, r_in, c_in, d, known) : std::nullopt;
    if (!other) continue;
    const Finding of_other = describe(other->r, other->c, c_in, d);
    if (!of_other.cause.starts_with("attention.mask") || of_other.cause == finding.cause) continue;
    finding.cause = "attention.mask", finding.fix = "give each item of the batch its own mask";
    finding.explanation =
        fmt::format("item {} of the batch: {}; item {}: {}", worst.item, of_worst, i, of_other.explanation);
    return;
  }
}

}  // namespace

void search_attention(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || !std::isfinite(failing.error)) return;
  const AttentionInputs r_in(failing, false);
  AttentionInputs c_in(failing, true);
  if (!r_in.complete() || !c_in.complete() || r_in.streams.size() != c_in.streams.size()) return;
  for (const int64_t d : r_in.head_sizes(r_in.picture ? failing.r.shape[1] : failing.r.last())) {
    bool known = false;
    const auto found = explain_item(failing, r_in, c_in, d, known);
    if (!known) continue;
    if (!found) return;
    Finding finding = describe(found->r, found->c, c_in, d);
    finding.explanation = found->where + finding.explanation;
    if (r_in.batch > 1 && finding.cause.starts_with("attention.mask")) look_at_other_masks(failing, *found, d, finding);
    finding.look_at = parent_of(failing.module) + ", between its projections and " + failing.module;
    out.push_back(std::move(finding));
    return;
  }
}

}  // namespace lockstep
