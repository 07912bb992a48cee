// y = rope(x): a tensor recorded after its rotation, or one that must not be rotated yet.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/rotary/rotary_turning.h"
#include "diagnose/rotary/rotary_variants.h"
#include "diagnose/search/fit.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr int64_t kMostTurns = 4096;  // measured

struct Turn {
  Turning how;
  int shift = 0;
};

std::string turn_words(const Turn& p) {
  std::string out = words_of(p.how);
  if (p.shift) out += fmt::format(", positions {:+d}", p.shift);
  return out;
}

// Which token a run of d elements belongs to: [.., tokens, d], [.., tokens, heads, d] or [.., tokens, heads * d].
struct TokenRuns {
  int64_t rows = 0, heads = 1;
  int64_t of(int64_t run) const { return run / heads % rows; }
};

std::optional<TokenRuns> tokens_of(const Shape& shape, int64_t rows, int64_t d) {
  const size_t rank = shape.size();
  if (shape[rank - 1] == d && rank >= 2 && shape[rank - 2] == rows) return TokenRuns{rows, 1};
  if (shape[rank - 1] == d && rank >= 3 && shape[rank - 3] == rows) return TokenRuns{rows, shape[rank - 2]};
  if (shape[rank - 1] % d == 0 && rank >= 2 && shape[rank - 2] == rows) return TokenRuns{rows, shape[rank - 1] / d};
  return std::nullopt;
}

double residual_of(const Turn& p, const RotaryTable& table, const Values& x, const Values& y, const Shape& shape) {
  const int64_t d = 2 * table.pairs;
  const auto tokens = tokens_of(shape, table.rows, d);
  if (!tokens || x.size() != y.size()) return INFINITY;
  Residual unexplained;
  std::vector<double> turned(static_cast<size_t>(d));
  for (const int64_t run : sample_indices(y.size() / d, kFitRows)) {
    std::copy_n(x.v.begin() + run * d, d, turned.begin());
    if (p.how.rotation != Rotation::kNone && !table.rotate(turned, tokens->of(run) + p.shift, p.how)) return INFINITY;
    for (int64_t j = 0; j < d; ++j) {
      const double target = y.v[static_cast<size_t>(run * d + j)];
      unexplained.add(turned[static_cast<size_t>(j)], target);
    }
  }
  return unexplained.relative();
}

// `itself`: the tensor is its own source, so that turning back undoes the reference's rotation.
std::vector<Edit<Turn>> turn_edits(const Turn& r, const std::vector<PairBlock>& axes, bool itself) {
  std::vector<Edit<Turn>> out;
  for (const ChangedTurning& change : changed_turnings(r.how, axes)) {
    out.push_back({change.name, [how = change.how](Turn& p) { p.how = how; }});
    if (r.how.rotation != Rotation::kNone) continue;
    out.push_back({itself ? EditName{"rotary.missing"} : change.name,
                   [how = change.how](Turn& p) { p.how = how, p.how.sign = -1; }});
  }
  if (r.how.rotation == Rotation::kNone) return out;
  for (const int shift : {1, -1, 2, -2, 3, -3, 4, -4, 8, -8, 16, -16})
    out.push_back({{"rotary.offset"}, [=](Turn& p) { p.shift = shift; }});
  return out;
}

// What may have been rotated.
struct Source {
  std::string label;
  const Values *r, *c;
  bool itself = false;  // the reference's own tensor, rotated or not
};

// As many elements, split into heads or not yet; and last the tensor itself, as the reference has it: recorded when the
// rotation had turned it already, or not yet.
std::vector<Source> sources(Case& failing) {
  constexpr size_t kMostSources = 6;
  std::vector<Source> out;
  for (const Item& item : failing.items) {
    if (out.size() >= kMostSources) break;
    if (checked_numel(item.shape) != failing.r.size()) continue;
    if (!is_floating(failing.reference_run().records[item.reference].dtype)) continue;
    const Values &r = failing.reference_of(item), &c = failing.candidate_of(item);
    if (r.size() == failing.r.size() && c.size() == failing.r.size()) out.push_back({item.label(), &r, &c});
  }
  out.push_back({"the reference's tensor", &failing.r, &failing.r, true});
  return out;
}

}  // namespace

void search_rotation(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || !std::isfinite(failing.error)) return;
  const std::vector<RotaryTable> tables_r = recorded_tables(failing, false, failing.reference_record()),
                                 tables_c = recorded_tables(failing, true, failing.reference_record());
  if (tables_r.size() != tables_c.size()) return;
  for (size_t t = 0; t < tables_r.size(); ++t) {
    const RotaryTable &table_r = tables_r[t], &table_c = tables_c[t];
    if (!tokens_of(failing.r.shape, table_r.rows, 2 * table_r.pairs)) continue;
    const RotaryVariants variants({&table_r});
    for (const Source& x : sources(failing)) {
      const auto measure_r = [&](const Turn& p) { return residual_of(p, table_r, *x.r, failing.r, failing.r.shape); };
      const auto measure_c = [&](const Turn& p) { return residual_of(p, table_c, *x.c, failing.c, failing.r.shape); };
      std::vector<Turn> forms(3);
      forms[1].how.rotation = Rotation::kInterleaved, forms[2].how.rotation = Rotation::kHalves;
      const EditedForm<Turn> r = fit_reference(forms, measure_r, 0);
      if (!failing.explains(r.residual)) continue;
      const double with_reference = measure_c(r.form);
      if (r.form.how.rotation != Rotation::kNone && failing.note_local(with_reference)) return;
      Budget budget(kMostTurns);
      EditSearch<Turn> search(r.form, measure_c, 1, budget);
      search.try_each(turn_edits(r.form, variants.axes(), x.itself));
      const EditedForm<Turn>& best = search.best();
      if (!failing.explains_candidate(best.residual) || !failing.is_better(best.residual, with_reference)) continue;
      const bool turned_back = x.itself && best.form.how.sign < 0;
      out.push_back({.cause = best.names[0].cause,
                     .explanation = fmt::format("reference: {}; yours: {}; x is {}", turn_words(r.form),
                                                turn_words(best.form), x.label),
                     .fix = turned_back ? "rotate it before it is recorded, or record the reference's sooner"
                            : x.itself  ? "record it before it is rotated, or do not rotate it here"
                                        : fmt::format("make it {}", turn_words(r.form)),
                     .residual_reference = r.residual,
                     .residual = best.residual,
                     .complexity = 0.9});
      return;
    }
  }
}

}  // namespace lockstep
