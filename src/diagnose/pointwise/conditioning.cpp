// One vector for each call (the time embedding, a modulation). One call alone fits anything; all calls together do not.
// And vectors that were made from tokens: the first, the last, or the mean of them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/case/thresholds.h"
#include "diagnose/pointwise/vector_origin.h"
#include "measure/line_fit.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr int64_t kMostRows = 5;  // more, and one call is enough
constexpr int64_t kShortestVector = 16;
constexpr size_t kMostStacked = 64, kMostPooled = 96;

struct Stacked {
  Values r, c;  // [calls, channels]
  double varies = 0;
};

Stacked stacked_calls(Case& failing) {
  Stacked out;
  const int64_t channels = failing.r.last();
  const auto add = [&](const Values& r, const Values& c) {
    for (int64_t row = 0; row < r.rows(); ++row) {
      bool repeated = false;
      for (int64_t i = 0; i < out.r.size() / channels && !repeated; ++i)
        repeated =
            relative_error(r.row(row), std::span(out.r.v).subspan(static_cast<size_t>(i * channels),
                                                                  static_cast<size_t>(channels))) < kRepeatedVector;
      if (repeated || out.r.v.size() >= kMostStacked * static_cast<size_t>(channels)) continue;
      out.r.v.insert(out.r.v.end(), r.row(row).begin(), r.row(row).end());
      out.c.v.insert(out.c.v.end(), c.row(row).begin(), c.row(row).end());
    }
  };
  add(failing.r, failing.c);
  const RunView& run = failing.reference_run();
  for (size_t i = 0; i < run.records.size(); ++i) {
    const RecordedTensor& record = run.records[i];
    const size_t partner = failing.partner ? failing.partner(i) : SIZE_MAX;
    if (i == failing.reference_record() || record.key.name != failing.name || record.role != failing.role ||
        partner == SIZE_MAX || !record.load)
      continue;
    const Values &r = failing.load_reference(i), &c = failing.load_candidate(partner);
    if (r.size() == failing.r.size() && c.size() == r.size() && r.last() == channels) add(r, c);
  }
  out.r.shape = out.c.shape = {static_cast<int64_t>(out.r.v.size()) / channels, channels};
  Residual apart;
  for (size_t j = 0; j < static_cast<size_t>(channels); ++j) {
    double sum = 0;
    for (int64_t i = 0; i < out.r.rows(); ++i) sum += out.r.row(i)[j];
    for (int64_t i = 0; i < out.r.rows(); ++i) {
      const double x = out.r.row(i)[j], d = x - sum / static_cast<double>(out.r.rows());
      apart.add_squares(d * d, x * x);
    }
  }
  out.varies = apart.relative_or(0);
  return out;
}

// c = a r + b in every channel, with the same a (or b) in all calls.
ChannelRelation relation_of(const Stacked& calls, bool factor) {
  const size_t channels = static_cast<size_t>(calls.r.last());
  ChannelRelation out{std::vector<double>(channels, 1), std::vector<double>(channels, 0), factor, !factor, 0};
  Residual unexplained;
  for (size_t j = 0; j < channels; ++j) {
    LineFit points;
    for (int64_t i = 0; i < calls.r.rows(); ++i) points.add(calls.r.row(i)[j], calls.c.row(i)[j]);
    const Line line = factor ? Line{points.factor(1), 0} : Line{1, points.offset()};
    out.a[j] = line.scale, out.b[j] = line.offset;
    for (int64_t i = 0; i < calls.r.rows(); ++i) unexplained.add(line.at(calls.r.row(i)[j]), calls.c.row(i)[j]);
  }
  out.residual = unexplained.relative();
  return out;
}

void search_all_calls(Case& failing, Findings& out) {
  const Stacked calls = stacked_calls(failing);
  if (calls.r.rows() < 2) return;
  for (const bool factor : {false, true}) {
    const ChannelRelation relation = relation_of(calls, factor);
    if (!failing.explains_candidate(relation.residual) || relation.residual > 0.05 * calls.varies) continue;
    if (auto origin = origin_of(failing, relation)) out.push_back(std::move(*origin));
    out.push_back(
        {.cause = factor ? Cause("affine.channel_scale") : Cause("affine.channel_offset"),
         .explanation = fmt::format("reference: y; yours: y {} in all {} different calls",
                                    factor ? "times the same vector" : "plus the same vector", calls.r.rows()),
         .fix = factor
                    ? "a weight or scale per channel is missing, or applied twice"
                    : "a vector is added that does not depend on the step (another embedding, a bias), or was left out",
         .residual = relation.residual,
         .complexity = factor ? 3.2 : 3});
    return;
  }
}

// [items, channels] from [items, tokens, channels].
Values pooled(const Values& tokens, int64_t items, int how) {
  const int64_t channels = tokens.last(), count = tokens.rows() / items;
  Values out = make_values({items, channels});
  for (int64_t item = 0; item < items; ++item)
    for (int64_t t = 0; t < count; ++t) {
      if ((how == 1 && t != 0) || (how == 2 && t + 1 != count)) continue;
      for (int64_t j = 0; j < channels; ++j)
        out.row(item)[static_cast<size_t>(j)] +=
            tokens.row(item * count + t)[static_cast<size_t>(j)] / static_cast<float>(how == 0 ? count : 1);
    }
  return out;
}

void search_pooled(Case& failing, Findings& out) {
  const RunView& run = failing.reference_run();
  const int64_t items = failing.r.rows(), channels = failing.r.last();
  size_t loads = 0;
  for (size_t i = failing.reference_record(); i-- > 0 && loads < kMostPooled;) {
    const RecordedTensor& record = run.records[i];
    if (!record.load || !is_floating(record.dtype) || record.shape.empty() || record.shape.back() != channels) continue;
    const int64_t rows = checked_numel(record.shape) / channels;
    if (rows <= items || rows % items || !same_call(run, i, failing.reference_record())) continue;
    const Values& tokens = failing.load_reference(i);
    ++loads;
    for (const int how : {0, 1, 2}) {
      static const char* const kWords[] = {"the mean of the tokens", "the first token", "the last token"};
      const Values vector = pooled(tokens, items, how);
      Values sum = vector;
      for (size_t k = 0; k < sum.v.size(); ++k) sum.v[k] += failing.r.v[k];
      const std::string label = (record.role == Role::kInput ? "input " : "") + record.key.name;
      for (const bool added : {false, true}) {
        const double residual = relative_error(failing.c.v, added ? sum.v : vector.v);
        if (!failing.explains_candidate(residual)) continue;
        out.push_back(
            {.cause = added ? Cause("residual.added") : Cause("stage.replaced"),
             .explanation = fmt::format("reference: y; yours: {}{} of {}", added ? "y plus " : "", kWords[how], label),
             .fix = added ? fmt::format("do not add what was pooled from {}", label)
                          : fmt::format("pass {} on, not what was pooled from {}", failing.name, label),
             .residual = residual,
             .complexity = 1.2});
        return;
      }
    }
  }
}

}  // namespace

void search_conditioning(Case& failing, Findings& out) {
  if (!std::isfinite(failing.error) || failing.r.rank() < 2 || failing.r.rows() > kMostRows ||
      failing.r.last() < kShortestVector)
    return;
  search_all_calls(failing, out);
  search_pooled(failing, out);
}

}  // namespace lockstep
