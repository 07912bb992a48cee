// The right numbers of a quantised weight with the wrong step (and lowest value) for each group, whatever they are:
// steps whose high or low bits were lost when they were unpacked, that belong to other groups or were rounded once
// more. They are solved for, one output at a time, from all rows that were recorded.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "diagnose/case/thresholds.h"
#include "diagnose/linear/linear_calls.h"
#include "diagnose/linear/linear_report.h"
#include "diagnose/weight/weight_grid.h"
#include "measure/residual.h"
#include "measure/small_solve.h"

namespace lockstep {
namespace {

constexpr int64_t kRowsOfSteps = 640;            // looked at, at most
constexpr int64_t kMostSolvedThroughRows = 128;  // larger groups that no row is made of are not solved for
constexpr size_t kOutputsOfSteps = 12;           // solved for once the first fits
constexpr size_t kLongestPeriod = 16;            // groups of a block whose steps are packed together

CallRows rows_for_steps(Case& failing, const Shape& weight) {
  const CallRows all = recorded_rows(failing, weight[1], weight[0], 4 * kRowsOfSteps);
  CallRows out;
  for (const int64_t i : sample_indices(static_cast<int64_t>(all.x.size()), kRowsOfSteps))
    out.x.push_back(all.x[static_cast<size_t>(i)]), out.y.push_back(all.y[static_cast<size_t>(i)]);
  return out;
}

// What one output is made of: its numbers, group by group, and for zero points a one for each.
struct GroupedNumbers {
  WeightGroups groups;
  bool zero_points;
  std::function<double(int64_t row, int64_t i)> number;
};

struct SolvedSteps {
  std::vector<double> steps;  // by group
  Residual unexplained;       // of the output
};

// y - b = sum over groups of step (x . numbers) + low sum(x).
std::optional<SolvedSteps> solve_steps(const CallRows& rows, const GroupedNumbers& numbers, int64_t output,
                                       double bias) {
  const size_t inputs = rows.x[0].size();
  const int64_t width = static_cast<int64_t>(inputs), before = numbers.groups.of(output, 0, width);
  const size_t groups = static_cast<size_t>(numbers.groups.of(output, width - 1, width) - before) + 1;
  std::vector<size_t> group(inputs);  // of each input, counted from this row's first
  for (size_t i = 0; i < inputs; ++i)
    group[i] = static_cast<size_t>(numbers.groups.of(output, static_cast<int64_t>(i), width) - before);
  const size_t n = numbers.zero_points ? 2 * groups : groups;
  std::vector<double> q(inputs), basis(rows.x.size() * n);
  NormalEquations equations(n);
  for (size_t i = 0; i < inputs; ++i) q[i] = numbers.number(output, static_cast<int64_t>(i));
  for (size_t k = 0; k < rows.x.size(); ++k) {
    double* row = basis.data() + k * n;
    for (size_t i = 0; i < inputs; ++i) {
      row[group[i]] += rows.x[k][i] * q[i];
      if (numbers.zero_points) row[groups + group[i]] += rows.x[k][i];
    }
    equations.add({row, n}, rows.y[k][static_cast<size_t>(output)] - bias);
  }
  const auto solved = equations.solve();
  if (!solved) return std::nullopt;
  SolvedSteps out;
  for (size_t k = 0; k < rows.x.size(); ++k) {
    const double y = rows.y[k][static_cast<size_t>(output)];
    double left = y - bias;
    for (size_t a = 0; a < n; ++a) left -= (*solved)[a] * basis[k * n + a];
    out.unexplained.add_squares(left * left, y * y);
  }
  out.steps.assign(solved->begin(), solved->begin() + static_cast<std::ptrdiff_t>(groups));
  return out;
}

// How the steps found differ from the right ones: how many, by how much, and whether always at the same places.
class StepsFound {
 public:
  void add(int64_t group, double found, double right) {
    if (!(std::fabs(right) > 0)) return;
    const double ratio = found / right;
    ++all_, seen_[static_cast<size_t>(group) % kLongestPeriod] = true;
    if (std::fabs(ratio - 1) <= kAnotherStep) return;
    ++other_;
    least_ = std::min(least_, ratio), most_ = std::max(most_, ratio);
    places_[static_cast<size_t>(group) % kLongestPeriod] = true;
  }
  std::string words() const {
    if (other_ == 0) return "with steps that are rounded";
    std::string out = fmt::format("with other steps for {} of {} groups looked at, {:.3g} to {:.3g} of the right ones",
                                  other_, all_, least_, most_);
    // The places in a block that are hit, where the length of the block sets them apart best.
    double share = 1;
    std::string places;
    for (size_t period = 2; period <= kLongestPeriod; period *= 2) {
      std::string which;
      size_t hit = 0, seen = 0;
      for (size_t i = 0; i < period; ++i) {
        bool marked = false, looked_at = false;
        for (size_t k = i; k < kLongestPeriod; k += period)
          marked = marked || places_[k], looked_at = looked_at || seen_[k];
        seen += looked_at;
        if (marked) which += fmt::format("{}{}", hit++ ? ", " : "", i);
      }
      const double part = static_cast<double>(hit) / static_cast<double>(period);
      if (seen == period && part < 0.95 * share)
        share = part, places = fmt::format(": number {} of every {}", which, period);
    }
    out += places;
    return out;
  }

 private:
  size_t all_ = 0, other_ = 0;
  double least_ = INFINITY, most_ = -INFINITY;
  std::vector<bool> places_ = std::vector<bool>(kLongestPeriod), seen_ = places_;
};

bool search_steps_of(const LinearProbe& probe, const CallRows& rows, const GroupedNumbers& numbers,
                     const std::function<double(int64_t)>& right_step, const std::string& words,
                     const LinearReport& report) {
  const int64_t width = probe.weight().last(), groups = numbers.groups.per_row(width);
  const int64_t unknowns = numbers.zero_points ? 2 * groups : groups;
  if (groups < 2 || 2 * unknowns > static_cast<int64_t>(rows.x.size())) return false;
  StepsFound found;
  Residual unexplained;
  const size_t count = std::min(kOutputsOfSteps, probe.columns().size());
  // Right numbers leave much less than the weight itself does: the first output tells.
  const double hopeless = std::min(kHopelessSteps, 0.5 * probe.with_reference());
  for (size_t k = 0; k < count; ++k) {
    const int64_t output = probe.columns()[k * probe.columns().size() / count];
    const auto solved =
        solve_steps(rows, numbers, output, probe.bias() ? (*probe.bias())[static_cast<size_t>(output)] : 0);
    if (!solved || (k == 0 && solved->unexplained.is_beyond(hopeless))) return false;
    unexplained.add_all(solved->unexplained);
    const int64_t before = numbers.groups.of(output, 0, width);
    for (size_t g = 0; g < solved->steps.size(); ++g)
      found.add(before + static_cast<int64_t>(g), solved->steps[g], right_step(before + static_cast<int64_t>(g)));
  }
  const double residual = unexplained.relative();
  return probe.good(residual) &&
         report.add("linear.weight_quantised", words + ", " + found.words(),
                    "unpack the steps of the groups as they were packed: all their bits, and each group its own",
                    residual, 1.6);
}

}  // namespace

bool search_group_steps(const LinearProbe& probe, const LinearReport& report) {
  const Values& w = probe.weight();
  if (w.size() == 0 || probe.columns().empty()) return false;
  const CallRows rows = rows_for_steps(probe.failing(), w.shape);
  if (rows.x.empty()) return false;
  EndsBySize ends(w);
  for (const Quantiser& quantiser : quantisers(w)) {
    if (quantiser.range || quantiser.group == w.last()) continue;  // a factor for each row is asked elsewhere
    // Steps are packed, and unpacked wrongly, in formats whose groups are powers of two.
    if ((quantiser.group & (quantiser.group - 1)) || (quantiser.plain_only && quantiser.group > kMostSolvedThroughRows))
      continue;
    WeightGrid grid(w, quantiser, ends.of(quantiser.groups()));
    const GroupedNumbers numbers{quantiser.groups(), quantiser.has_zero_points(),
                                 [&](int64_t row, int64_t i) { return grid.number(row, i); }};
    if (search_steps_of(
            probe, rows, numbers, [&](int64_t group) { return grid.step(group); }, quantiser.words(), report))
      return true;
  }
  return false;
}

}  // namespace lockstep
