// out = softmax(rope(q) rope(k)^T * scale + mask) v, from the recorded projections and norms. Rotary embedding is part
// of it: no module shows its result.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "diagnose/attention/attention_grammar.h"
#include "diagnose/case/thresholds.h"
#include "diagnose/rotary/rotary_turning.h"
#include "diagnose/search/fit.h"
#include "measure/axis_words.h"

namespace lockstep {
namespace {

constexpr int64_t kManyRows = 1024, kLargestTurnedHead = 512;
constexpr int64_t kWorkForAll = int64_t{3} << 29, kWorkForPart = kWorkForAll / 4;  // multiplications

AttentionFormula plain_formula(Rotation rotation, bool causal, double scale) {
  AttentionFormula p;
  for (auto& stream : p.of)
    for (const size_t operand : {0, 1}) stream[operand].turning.rotation = rotation;
  p.mask.order = causal ? Order::kCausal : Order::kAny, p.scale = scale;
  return p;
}

// Of a reference: few exist.
std::vector<AttentionFormula> reference_forms(const AttentionInputs& inputs) {
  std::vector<AttentionFormula> out;
  std::vector<Rotation> rotations{Rotation::kNone};
  if (inputs.has_tables()) rotations = {Rotation::kInterleaved, Rotation::kHalves, Rotation::kNone};
  for (const Rotation rotation : rotations)
    for (const bool causal : {false, true})
      for (const double scale : {0.0, 1.0}) out.push_back(plain_formula(rotation, causal, scale));
  // Halves of each axis's part turn together.
  if (inputs.has_tables() && inputs.variants().axes().size() > 1)
    for (const bool causal : {false, true}) {
      AttentionFormula p = plain_formula(Rotation::kInterleaved, causal, 0);
      for (auto& stream : p.of)
        for (const size_t operand : {0, 1})
          stream[operand].turning = with_halves_of_axes(stream[operand].turning, inputs.variants().axes());
      out.push_back(p);
    }
  // A prompt shorter than the batch's longest is padded, and what pads it is hidden.
  const int64_t text = inputs.batch > 1 ? inputs.tokens_of(*inputs.streams[0].v, 1) : 0;
  for (const Rotation rotation : rotations)
    for (const bool causal : {false, true})
      for (int padded = 1; padded < std::min<int64_t>(text, 64); ++padded) {
        out.push_back(plain_formula(rotation, causal, 0));
        out.back().mask.padded = padded;
      }
  return out;
}

// On the scores, on one stream's q, k or v, ...
std::vector<FreeNumber<AttentionFormula>> free_numbers(const AttentionFormula& r, size_t streams, int64_t d) {
  std::vector<FreeNumber<AttentionFormula>> out{
      {other_scale(r.scale, d), [](AttentionFormula& p, double x) { p.scale = x; }},
      {zero_keys(), [](AttentionFormula& p, double x) { p.zero_keys = x; }}};
  if (r.mask.hides_something())
    for (const Hiding hiding : {Hiding::kAdded, Hiding::kReplaced})
      out.push_back({other_hiding(r.mask),
                     [=](AttentionFormula& p, double x) { p.mask.hiding = hiding, p.mask.value = x; }, true});
  if (streams == 2)
    for (const size_t operand : {0, 1, 2})
      for (const size_t s : {0, 1})
        out.push_back({{"attention.scale", fmt::format("remove the factor on {}", "qkv"[operand])},
                       [=](AttentionFormula& p, double x) { p.of[s][operand].factor = x; },
                       true});
  out.push_back({{"attention.cap"}, [](AttentionFormula& p, double x) { p.cap = x; }});
  if (r.of[0][0].turning.rotation != Rotation::kNone)
    out.push_back({{"rotary.factor", "rotate once, by the angle of the table"}, [](AttentionFormula& p, double x) {
                     for (auto& stream : p.of) stream[0].turning.turns = stream[1].turning.turns = x;
                   }});
  // Cosines in place of products, with a scale of their own.
  out.push_back({{"attention.norm_added"}, [](AttentionFormula& p, double x) {
                   p.scale = x;
                   for (auto& stream : p.of) stream[0].unit = stream[1].unit = Unit::kLength;
                 }});
  return out;
}

struct Edits {
  std::vector<AttentionEdit> usual, rarer;
  std::vector<FreeNumber<AttentionFormula>> numbers;
};

// One edit; else keys that are solved for; else a number of any size; else one of the rarer edits; else the most
// promising with a number or one more edit each.
EditedForm<AttentionFormula> best_edits(const Case& failing, const Attention& attention, const Edits& edits,
                                        const AttentionFormula& r, int64_t work) {
  constexpr size_t kMostWithNumbers = 3, kMostPromising = 6;
  Budget budget(work);
  attention.measure(r);  // the attention keeps what this made, and most edits leave most of it as it is
  EditSearch<AttentionFormula> search(
      r, [&](const AttentionFormula& p) { return attention.measure(p); }, attention.work(), budget);
  search.try_each(edits.usual);
  const double exact = std::max(2 * failing.tolerance, failing.floor);
  const auto is_exact = [&] { return search.best().residual <= exact; };
  if (is_exact() || (budget.is_spent() && failing.explains_candidate(search.best().residual))) return search.best();
  search.solve([&](const AttentionFormula& p, Budget& left) { return attention.with_hidden_keys(p, left); }, exact);
  for (const FreeNumber<AttentionFormula>& number : edits.numbers)
    if (!is_exact()) search.try_number(number);
  if (is_exact()) return search.best();
  if (budget.is_spent()) budget.add(work / 4);  // where tokens are many the usual edits took all there was
  search.try_each(edits.rarer);
  if (failing.explains_candidate(search.best().residual)) return search.best();
  search.try_number_on(kMostWithNumbers, edits.numbers[0]);
  if (failing.explains_candidate(search.best().residual)) return search.best();
  search.try_pairs(kMostPromising, edits.usual, [&](double residual) { return failing.explains(residual); });
  return search.best();
}

// The heads, or the rows, in which the two results differ; empty when nearly all do, or hardly any.
std::vector<int64_t> differing_slices(const Values& a, const Values& b, int64_t head_size, bool heads,
                                      double tolerance) {
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
  return static_cast<double>(out.size()) > kMostSlices * static_cast<double>(count) ? std::vector<int64_t>{} : out;
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
  EditedForm<AttentionFormula> r, c;
  std::string where;  // the part of it that differs; empty: all
};

Finding finding_of(const ExplainedItem& found, const AttentionInputs& inputs, int64_t d) {
  const AttentionFormula &r = found.r.form, &c = found.c.form;
  // The right result put in other places is said more plainly of the two results alone, where that explains it.
  AttentionFormula placed = r;
  placed.merge = c.merge, placed.row_shift = c.row_shift;
  placed.merged_shift = c.merged_shift, placed.merged_backwards = c.merged_backwards;
  return {.cause = found.c.names[0].cause,
          .explanation =
              fmt::format("reference: {}; yours: the same, but {}", words_of(r, d), difference_words(r, c, inputs, d)),
          .fix = found.c.fix(),
          .residual_reference = found.r.residual,
          .residual = found.c.residual,
          .complexity = placed == c ? 1.4 : 0.8};
}

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
  const EditedForm<AttentionFormula> r = reference_formula(r_in, r_attention, failing.tolerance);
  is_reference_known = failing.explains(r.residual);
  if (!is_reference_known) return std::nullopt;
  const double with_reference = c_attention.measure(r.form);
  if (failing.note_local(with_reference)) return std::nullopt;
  c_in.find_other_calls(failing);
  const Edits edits{attention_edits(r.form, c_in, d, width), rarer_attention_edits(r.form, c_in, d, width),
                    free_numbers(r.form, c_in.streams.size(), d)};
  EditedForm<AttentionFormula> best = best_edits(failing, chooser, edits, r.form, kWorkForAll);
  best.residual = c_attention.measure(best.form);
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
    best = best_edits(failing, attention, edits, r.form, kWorkForPart);
    best.residual = attention.measure(best.form);
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
  const EditedForm<AttentionFormula> r = reference_formula(in, attention, failing.tolerance);
  return failing.explains(r.residual) && hide_the_same(mask, r.form.mask, attention.tokens());
}

bool is_mask(Cause cause) {
  return cause == "attention.mask" || cause == "attention.mask_missing" || cause == "attention.mask_added";
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
    if (worst.c.form.mask.hides_something() && is_mask_of_item(failing, worst.c.form.mask, i, d)) {
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
    const Finding of_other = finding_of(*other, c_in, d);
    if (!is_mask(of_other.cause) || of_other.cause == finding.cause) continue;
    finding.cause = "attention.mask", finding.fix = "give each item of the batch its own mask";
    finding.explanation =
        fmt::format("item {} of the batch: {}; item {}: {}", worst.item, of_worst, i, of_other.explanation);
    return;
  }
}

}  // namespace

EditedForm<AttentionFormula> reference_formula(const AttentionInputs& inputs, const Attention& attention,
                                               double tolerance) {
  return fit_reference(
      reference_forms(inputs), [&](const AttentionFormula& p) { return attention.measure(p); }, tolerance);
}

void search_attention(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || !std::isfinite(failing.error)) return;
  AttentionInputs r_in(failing, false), c_in(failing, true);
  if (!r_in.complete() || !c_in.complete() || r_in.streams.size() != c_in.streams.size()) return;
  // A table that the program computes on the way is in no record: the usual ones are tried, where the reference needs
  // one.
  std::vector<double> thetas{0};
  if (!r_in.has_tables() && !r_in.picture && r_in.streams.size() == 1)
    thetas.insert(thetas.end(), {1e4, 1e6, 5e5, 1e5, 1e7});
  for (const double theta : thetas)
    for (const int64_t d : r_in.head_sizes(r_in.picture ? failing.r.shape[1] : failing.r.last())) {
      if (theta > 0 && (d % 2 != 0 || d > kLargestTurnedHead)) continue;
      if (theta > 0) r_in.assume_table(theta, d), c_in.assume_table(theta, d);
      bool known = false;
      const auto found = explain_item(failing, r_in, c_in, d, known);
      if (!known) continue;
      if (!found) return;
      Finding finding = finding_of(*found, c_in, d);
      finding.explanation = found->where + finding.explanation;
      if (r_in.batch > 1 && is_mask(finding.cause)) look_at_other_masks(failing, *found, d, finding);
      finding.look_at = parent_of(failing.module) + ", between its projections and " + failing.module;
      out.push_back(std::move(finding));
      return;
    }
}

}  // namespace lockstep
