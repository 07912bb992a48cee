// Only some of the inputs count: a sum over ranks or over blocks of the inputs that was not made, made twice, or that
// ends too early; or a part of the inputs meets the weights of another part.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "diagnose/case/thresholds.h"
#include "diagnose/linear/linear_report.h"
#include "measure/axis_words.h"
#include "measure/residual.h"
#include "measure/small_solve.h"

namespace lockstep {
namespace {

constexpr int64_t kMostCrossedParts = 4;  // each of them with each: more are too many to solve for
constexpr int64_t kMostInputParts = 64;   // each with a factor of its own

constexpr const char* kSumMissing =
    "add what the other part gives: a sum over ranks or blocks of the inputs is missing";

// y - b = sum over parts of factor[p, q] (x_q . W_p), and a factor of the bias where there is one.
struct PartFactors {
  int64_t parts = 2;
  bool crossed = false;         // x's part q with W's part p, not only p with p
  std::vector<double> factors;  // [p * parts + q] or [p]
  double bias = 1;
  double residual = INFINITY;
};

std::optional<PartFactors> solve_parts(const LinearProbe& probe, int64_t parts, bool crossed, bool quick) {
  const Values &x = probe.input(), &w = probe.weight(), mine = probe.without_bias();
  const size_t n = static_cast<size_t>(parts), size = static_cast<size_t>(w.last() / parts);
  const size_t unknowns = (crossed ? n * n : n) + (probe.bias() ? 1 : 0);
  const size_t columns = std::min<size_t>(quick ? 12 : SIZE_MAX, probe.columns().size());
  if (3 * unknowns > columns * static_cast<size_t>(x.rows())) return std::nullopt;
  std::vector<double> basis;
  std::vector<double> right;
  NormalEquations equations(unknowns);
  for (int64_t i = 0; i < x.rows(); ++i)
    for (size_t k = 0; k < columns; ++k) {
      const int64_t j = probe.columns()[k];
      const size_t begin = basis.size();
      for (size_t p = 0; p < n; ++p)
        for (size_t q = crossed ? 0 : p; q < (crossed ? n : p + 1); ++q)
          basis.push_back(dot(x.row(i).subspan(q * size, size), w.row(j).subspan(p * size, size)));
      const double b = probe.bias() ? (*probe.bias())[static_cast<size_t>(j)] : 0;
      if (probe.bias()) basis.push_back(b);
      right.push_back(mine.row(i)[k] + b);
      equations.add({basis.data() + begin, unknowns}, right.back());
    }
  auto solved = equations.solve();
  if (!solved) return std::nullopt;
  Residual unexplained;
  for (size_t k = 0; k < right.size(); ++k) {
    double left = right[k];
    for (size_t a = 0; a < unknowns; ++a) left -= (*solved)[a] * basis[k * unknowns + a];
    unexplained.add_squares(left * left, right[k] * right[k]);
  }
  PartFactors out{parts, crossed, std::move(*solved), 1, unexplained.relative()};
  if (probe.bias()) out.bias = out.factors.back(), out.factors.pop_back();
  return out;
}

bool is_whole(double factor) {
  return std::fabs(factor - std::nearbyint(factor)) < kWholeNumber && std::fabs(factor) < 64.5;
}

// "0 x W1 + 2 x W2": the parts that count, by their factors.
std::string part_words(const PartFactors& found, int64_t inputs) {
  const size_t n = static_cast<size_t>(found.parts);
  const int64_t size = inputs / found.parts;
  if (!found.crossed) {
    std::vector<bool> without(static_cast<size_t>(inputs)), often = without;
    double most = 0;
    for (size_t i = 0; i < without.size(); ++i) {
      const double factor = found.factors[i / static_cast<size_t>(size)];
      without[i] = std::fabs(factor)<0.5, often[i] = factor> 1.5;
      if (often[i]) most = std::max(most, std::nearbyint(factor));
    }
    std::string out;
    if (std::find(without.begin(), without.end(), true) != without.end())
      out = index_set_words("input", without) + " left out";
    if (most > 0)
      out += fmt::format("{}{} counted {} times", out.empty() ? "" : ", ", index_set_words("input", often), most);
    return out;
  }
  std::string out;
  for (size_t p = 0; p < n; ++p)
    for (size_t q = 0; q < n; ++q)
      if (const double factor = std::nearbyint(found.factors[p * n + q]); factor != 0)
        out += fmt::format("{}{}part {} of x with part {} of W", out.empty() ? "" : " + ",
                           factor == 1 ? "" : fmt::format("{} ", factor), q + 1, p + 1);
  return fmt::format("of {} parts of the inputs only {}", n, out.empty() ? "none" : out);
}

bool report_parts(const PartFactors& found, const LinearProbe& probe, const LinearReport& report) {
  const bool whole = std::all_of(found.factors.begin(), found.factors.end(), is_whole);
  const bool bias_whole = !probe.bias() || is_whole(found.bias);
  if (!bias_whole || !whole) return false;
  bool plain = true;  // every part once with its own: nothing but the bias would be wrong
  const size_t n = static_cast<size_t>(found.parts);
  for (size_t k = 0; k < found.factors.size(); ++k) {
    const double right = !found.crossed || k / n == k % n ? 1 : 0;
    plain = plain && std::nearbyint(found.factors[k]) == right;
  }
  if (plain) return false;
  const double bias = std::nearbyint(found.bias);
  std::string words = part_words(found, probe.weight().last());
  if (probe.bias() && bias != 1) words += fmt::format(", and {}", bias == 0 ? "no b" : fmt::format("{} b", bias));
  return report.add("linear.different_weight", "x W^T + b with " + words, kSumMissing, found.residual, 1);
}

// The sum ends too early or begins too late: what is left of it, by the number of inputs that are counted.
bool search_ends(const LinearProbe& probe, const LinearReport& report) {
  const Values &x = probe.input(), &w = probe.weight(), mine = probe.without_bias();
  const size_t inputs = static_cast<size_t>(w.last()), columns = std::min<size_t>(16, probe.columns().size());
  std::vector<double> first(inputs + 1), last(inputs + 1);  // squares left with only the first, the last n inputs
  for (int64_t i = 0; i < x.rows(); ++i)
    for (size_t k = 0; k < columns; ++k) {
      const auto weights = w.row(probe.columns()[k]);
      const double target = mine.row(i)[k];
      double sum = 0;
      for (size_t n = 0; n <= inputs; ++n) {
        first[n] += (target - sum) * (target - sum);
        if (n < inputs) sum += static_cast<double>(x.row(i)[n]) * weights[n];
      }
      sum = 0;
      for (size_t n = 0; n <= inputs; ++n) {
        last[n] += (target - sum) * (target - sum);
        if (n < inputs) sum += static_cast<double>(x.row(i)[inputs - 1 - n]) * weights[inputs - 1 - n];
      }
    }
  for (const bool at_end : {false, true}) {
    const std::vector<double>& squares = at_end ? last : first;
    const size_t n = static_cast<size_t>(std::min_element(squares.begin(), squares.end()) - squares.begin());
    if (n == 0 || n == inputs) continue;
    Values counted = x;
    for (int64_t i = 0; i < x.rows(); ++i)
      for (size_t k = 0; k < inputs; ++k)
        if (at_end ? k < inputs - n : k >= n) counted.row(i)[k] = 0;
    const double residual = probe.candidate_with_input(counted);
    if (probe.good(residual))
      return report.add(
          "linear.different_weight",
          fmt::format("x W^T + b with the {} {} of {} inputs left out", at_end ? "first" : "last", inputs - n, inputs),
          "the sum must run over all inputs: a block at its end, or what another rank has, is missing", residual, 1);
  }
  return false;
}

// Each part of the outputs is made of its own part of the inputs alone, or of all but that one.
bool search_blocks_alone(const LinearProbe& probe, const LinearReport& report) {
  const Values& w = probe.weight();
  for (int64_t parts = 2; parts <= 16; ++parts) {
    if (w.shape[0] % parts || w.last() % parts) continue;
    for (const bool alone : {true, false}) {
      const auto masked = [&](size_t count) {
        Values rows = make_values({static_cast<int64_t>(count), w.last()});
        for (size_t k = 0; k < count; ++k) {
          const int64_t j = probe.columns()[k], part = j / (w.shape[0] / parts), size = w.last() / parts;
          for (int64_t i = 0; i < w.last(); ++i)
            if ((i / size == part) == alone)
              rows.row(static_cast<int64_t>(k))[static_cast<size_t>(i)] = w.row(j)[static_cast<size_t>(i)];
        }
        return rows;
      };
      if (!probe.good(probe.candidate_rows(masked(std::min<size_t>(2, probe.columns().size()))))) continue;
      const double residual = probe.candidate_rows(masked(probe.columns().size()));
      if (probe.good(residual))
        return report.add("linear.different_weight",
                          fmt::format("x W^T + b with each of {} parts of the outputs made of {} part of the inputs",
                                      parts, alone ? "its own" : "all but its own"),
                          kSumMissing, residual, 1);
    }
  }
  return false;
}

}  // namespace

bool search_input_parts(const LinearProbe& probe, const LinearReport& report) {
  const int64_t inputs = probe.weight().last();
  if (probe.rows() < 4 || probe.columns().size() < 2 || inputs < 4) return false;
  if (search_ends(probe, report) || search_blocks_alone(probe, report)) return true;
  for (const bool crossed : {false, true})
    for (int64_t parts = 2; parts <= (crossed ? kMostCrossedParts : kMostInputParts); ++parts) {
      if (inputs % parts || inputs / parts < 2) continue;
      const auto quick = solve_parts(probe, parts, crossed, true);
      if (!quick || !probe.good(quick->residual)) continue;
      const auto found = solve_parts(probe, parts, crossed, false);
      if (found && probe.good(found->residual) && report_parts(*found, probe, report)) return true;
    }
  return false;
}

}  // namespace lockstep
