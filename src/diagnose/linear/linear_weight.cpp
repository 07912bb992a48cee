// The layer's own weight, changed on its way: turned, rearranged, scaled, rounded, quantised; or its input changed
// inside.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "diagnose/case/thresholds.h"
#include "diagnose/layout/layouts.h"
#include "diagnose/linear/linear_report.h"
#include "diagnose/search/functions.h"
#include "diagnose/search/number_formats.h"
#include "diagnose/weight/weight_forms.h"
#include "diagnose/weight/weight_grid.h"
#include "measure/line_fit.h"
#include "measure/residual.h"
#include "measure/small_solve.h"

namespace lockstep {
namespace {

constexpr int64_t kMostOrders = 4096;  // inputs beyond which their orders are not tried one by one

using Order = std::vector<int64_t>;

// sum_k x[k] W[order[k]]: as if the input were moved to meet the weight.
Values moved_input(const Values& x, const Order& order) {
  Values out = x;
  for (int64_t row = 0; row < x.rows(); ++row)
    for (size_t k = 0; k < order.size(); ++k) out.row(row)[static_cast<size_t>(order[k])] = x.row(row)[k];
  return out;
}

// Orders in which inputs may come: parts exchanged, blocks against interleaved, reversed, rolled.
bool try_orders(int64_t n, const std::function<bool(const Order&, const std::string&)>& works) {
  Order order(static_cast<size_t>(n));
  const auto fill = [&](auto&& rule) {
    for (int64_t i = 0; i < n; ++i) order[static_cast<size_t>(i)] = rule(i);
  };
  for (const int64_t parts : {2, 3, 4, 5, 6}) {
    if (n % parts) continue;
    const int64_t size = n / parts;
    Order of_parts(static_cast<size_t>(parts));
    std::iota(of_parts.begin(), of_parts.end(), int64_t{0});
    while (std::next_permutation(of_parts.begin(), of_parts.end())) {
      fill([&](int64_t i) { return of_parts[static_cast<size_t>(i / size)] * size + i % size; });
      if (works(order, fmt::format("the input's {} parts in another order", parts))) return true;
    }
  }
  for (int64_t a = 2; a <= n / 2; ++a) {
    if (n % a) continue;
    const int64_t b = n / a;
    fill([&](int64_t i) { return i % a * b + i / a; });
    if (works(order, fmt::format("the input read as {} x {} in place of {} x {}", b, a, a, b))) return true;
    fill([&](int64_t i) { return i / b * b + (b - 1 - i % b); });
    if (works(order, fmt::format("the input reversed within its {} parts", a))) return true;
    fill([&](int64_t i) { return (a - 1 - i / b) * b + i % b; });
    if (a > 6 && works(order, fmt::format("the input's {} parts in reverse order", a))) return true;
  }
  for (int64_t block = 4; block <= n / 2; ++block)
    for (int64_t a = 2; n % block == 0 && a <= block / 2; ++a) {
      if (block % a) continue;
      const int64_t b = block / a;
      fill([&](int64_t i) { return i / block * block + i % block % a * b + i % block / a; });
      if (works(order, fmt::format("the input's blocks of {} read as {} x {} in place of {} x {}", block, b, a, a, b)))
        return true;
    }
  fill([&](int64_t i) { return n - 1 - i; });
  if (works(order, "the input in reverse order")) return true;
  for (const int64_t shift : {1, -1, 2, -2, 4, 8, 16, 32, 64, 128}) {
    if (std::abs(shift) >= n) continue;
    fill([&](int64_t i) { return ((i + shift) % n + n) % n; });
    if (works(order, fmt::format("the input rolled by {}", shift))) return true;
  }
  return false;
}

// Zeros make the bias alone, and so, nearly, does a weight that is only small: what is left beside the bias tells them
// apart, as it still goes with the right product.
bool search_zeros(const LinearProbe& probe, const LinearReport& report) {
  const double residual =
      probe.candidate_rows(make_values({static_cast<int64_t>(probe.columns().size()), probe.weight().last()}));
  return probe.good(residual) && std::fabs(correlation(probe.without_bias().v, probe.product().v)) < kUnrelated &&
         report.add("linear.zero_weight", "0 x + b: every row is the bias", "the weight is zeros: it was never loaded",
                    residual, 0.7);
}

bool search_turned(const LinearProbe& probe, const LinearReport& report) {
  const int64_t outputs = probe.weight().shape[0], inputs = probe.weight().shape[1];
  // W's memory taken for [in, out] and transposed; where both are as many, that is W^T.
  const double turned = probe.candidate_moved([&](int64_t row, int64_t i) { return i * outputs + row; });
  if (probe.good(turned) && outputs == inputs)
    return report.add("linear.transposed_weight", "x W + b",
                      "transpose the weight when it is loaded, or multiply by its transpose", turned, 0.7);
  if (outputs == inputs) return false;
  // The memory of W^T, [in, out], read as [out, in].
  const double renamed = probe.candidate_moved([&](int64_t row, int64_t i) {
    const int64_t at = row * inputs + i;
    return at % outputs * inputs + at / outputs;
  });
  if (probe.good(renamed))
    return report.add("linear.transposed_weight", "x V^T + b, V = the memory of W^T read as W's shape",
                      "transpose the weight, do not only rename its axes", renamed, 0.8);
  return probe.good(turned) &&
         report.add("linear.transposed_weight", "x V^T + b, V = W's memory taken for [in, out] and transposed",
                    "the weight lies as [out, in] already: do not transpose it", turned, 0.8);
}

bool search_orders(const LinearProbe& probe, const LinearReport& report) {
  const Values& w = probe.weight();
  if (w.shape[1] <= kMostOrders && try_orders(w.shape[1], [&](const Order& order, const std::string& words) {
        const Values moved = moved_input(probe.input(), order);
        if (probe.candidate_with_input(moved, true) > kHopelessWeight) return false;  // few rows rule most orders out
        const double residual = probe.candidate_with_input(moved);
        return probe.good(residual) && report.add("linear.input_parts_exchanged", words,
                                                  "join or split the input in the reference's order", residual, 1);
      }))
    return true;
  // The outputs in another order, the bias not: found by content.
  if (!probe.bias() || w.shape[0] > kMostOrders || w.shape[1] > kMostOrders || probe.rows() < 4) return false;
  const std::vector<int64_t> all = sample_indices(w.shape[0], w.shape[0]);
  const Values mine = probe.without_bias(all), right = probe.product(all);
  for (const Rearrangement& found : find_rearrangements("", mine, right, probe.failing().tolerance))
    if (probe.failing().explains_candidate(found.residual))
      return report.add(found.id, "the same product, " + found.words + ", and then the bias in its own order",
                        "the rows of the weight are in another order than those of the bias", found.residual, 1.2);
  return false;
}

// t = k P: one factor, or one for each output channel. What is left is measured against the whole output, as it is
// everywhere, and need only be a small part of t: a weight that was scaled is often rounded too.
bool search_scales(const LinearProbe& probe, const LinearReport& report) {
  const Values mine = probe.without_bias(), right = probe.product();
  const size_t columns = probe.columns().size();
  LineFit all;
  std::vector<LineFit> by_column(columns);
  for (int64_t i = 0; i < mine.rows(); ++i)
    for (size_t k = 0; k < columns; ++k) {
      all.add(right.row(i)[k], mine.row(i)[k]), by_column[k].add(right.row(i)[k], mine.row(i)[k]);
    }
  const double factor = all.factor(0);
  struct Rest {
    Residual of_product, of_output;
  } one, each;
  for (int64_t i = 0; i < mine.rows(); ++i)
    for (size_t k = 0; k < columns; ++k) {
      const double x = right.row(i)[k], t = mine.row(i)[k];
      const double b = probe.bias() ? (*probe.bias())[static_cast<size_t>(probe.columns()[k])] : 0;
      for (const auto& [rest, made] : {std::pair{&one, factor * x}, {&each, by_column[k].factor(0) * x}})
        rest->of_product.add(made, t), rest->of_output.add(made + b, t + b);
    }
  const auto fits = [&](const Rest& rest) {
    return probe.good(rest.of_output.relative()) && rest.of_product.relative() < kScaledRest;
  };
  if (fits(one) && std::fabs(factor - 1) > 10 * probe.failing().tolerance) {
    // Without a bias the whole output is scaled, which is said more plainly elsewhere.
    const std::string named = constant_name(factor, probe.weight().shape, probe.failing().tolerance);
    return report.add("linear.weight_scaled",
                      fmt::format("{} x W^T + b{}", number(factor), named.empty() ? "" : " (= " + named + ")"),
                      "a scale of the weight (of its quantisation, of an adapter) is missing or applied twice",
                      one.of_output.relative(), probe.bias() ? 1 : 2.1);
  }
  if (probe.rows() >= 6 && fits(each))
    return report.add("linear.weight_row_scale", "x W^T with a factor of its own for each output channel, plus b",
                      "the scales of the weight's rows are missing, or those of other rows", each.of_output.relative(),
                      1.5);
  return false;
}

// Every number to the nearest of evenly spaced ones between the ends of the whole weight.
Values quantised_as_one(const Values& rows, float low, float high, int bits, bool affine) {
  Values out = rows;
  const double levels = affine ? (1 << bits) - 1 : (1 << (bits - 1)) - 1, base = affine ? low : 0;
  const double step =
      affine ? (static_cast<double>(high) - low) / levels : std::max(std::fabs(low), std::fabs(high)) / levels;
  if (step > 0)
    for (float& value : out.v) value = static_cast<float>(base + step * std::nearbyint((value - base) / step));
  return out;
}

// Only the rows that are looked at are made: weights are large.
bool search_precision_of_weight(const LinearProbe& probe, const LinearReport& report) {
  const Values& w = probe.weight();
  const Values rows = take_rows(w, probe.columns());
  const Values few = take_rows(
      w, {probe.columns().begin(), probe.columns().begin() + std::min<int64_t>(2, std::ssize(probe.columns()))});
  const double hopeless = 0.9 * probe.candidate_rows(few);
  const auto works = [&](const Values& changed, double& residual) {
    residual = probe.candidate_rows(changed);
    return probe.good(residual);
  };
  double residual = 0;
  if (const Format format = first_fitting(
          number_formats(), [&](const NumberFormat& next) { return works(in_format(rows, &next), residual); }))
    return report.add("linear.weight_rounded", fmt::format("W rounded to {}", format->name),
                      "keep the weight in its own dtype", residual, 1);
  if (const Format both = first_fitting(number_formats(), [&](const NumberFormat& next) {
        return probe.good(residual = probe.candidate_in(nullptr, &next, &next));
      }))
    return report.add("linear.weight_rounded", fmt::format("W and b rounded to {}", both->name),
                      "keep weight and bias in their own dtype", residual, 1);
  const auto quantised_words = [&](int bits, const std::string& groups, bool affine) {
    return report.add("linear.weight_quantised",
                      fmt::format("W in {} bits, {}{}", bits, groups, affine ? ", affine" : ""),
                      "expected when the candidate is quantised; else load the full weight", residual, 1);
  };
  const auto [low, high] = std::minmax_element(w.v.begin(), w.v.end());
  for (const int bits : {8, 4, 6, 5, 3, 2})
    for (const bool affine : {false, true}) {
      for (const WeightGroups groups : group_sizes(w.shape))
        if (const int64_t group = groups.size;
            w.last() % group == 0 && !(probe.candidate_rows(quantised(few, bits, group, affine)) > hopeless) &&
            works(quantised(rows, bits, group, affine), residual))
          return quantised_words(bits, group == w.last() ? "one scale a row" : fmt::format("groups of {}", group),
                                 affine);
      if (works(quantised_as_one(rows, *low, *high, bits, affine), residual))
        return quantised_words(bits, "one scale for all", affine);
    }
  // Held to a bound: the largest weights cut off.
  const double largest = std::max(std::fabs(*low), std::fabs(*high));
  for (const double share : {0.9, 0.75, 0.5, 0.25, 0.1}) {
    Values held = rows;
    const float limit = static_cast<float>(share * largest);
    for (float& value : held.v) value = std::clamp(value, -limit, limit);
    if (works(held, residual))
      return report.add("linear.different_weight", fmt::format("W held to {:.3g}", limit), "do not clamp the weight",
                        residual, 1.4);
  }
  return false;
}

// y_j - b_j = sum over groups g of s[j, g] (x_g . W[j, g]): right numbers with the scales of other groups.
bool search_group_scales(const LinearProbe& probe, const LinearReport& report) {
  const Values &w = probe.weight(), &x = probe.input();
  const Values mine = probe.without_bias();
  for (const int64_t group : {int64_t{128}, int64_t{64}, int64_t{32}, int64_t{16}}) {
    if (w.last() % group) continue;
    const size_t n = static_cast<size_t>(w.last() / group);
    if (n < 2 || static_cast<int64_t>(2 * n) > x.rows()) continue;
    Residual unexplained;
    for (size_t k = 0; k < probe.columns().size(); ++k) {
      const auto weights = w.row(probe.columns()[k]);
      std::vector<std::vector<double>> basis(static_cast<size_t>(x.rows()), std::vector<double>(n));
      std::vector<double> gram(n * n), right(n);
      for (int64_t i = 0; i < x.rows(); ++i) {
        auto& row = basis[static_cast<size_t>(i)];
        for (size_t a = 0; a < weights.size(); ++a)
          row[a / static_cast<size_t>(group)] += static_cast<double>(x.row(i)[a]) * weights[a];
        for (size_t a = 0; a < n; ++a) {
          for (size_t b = 0; b < n; ++b) gram[a * n + b] += row[a] * row[b];
          right[a] += row[a] * mine.row(i)[k];
        }
      }
      if (!solve_symmetric(gram, right, n)) return false;
      for (int64_t i = 0; i < x.rows(); ++i) {
        double value = -mine.row(i)[k];
        for (size_t a = 0; a < n; ++a) value += right[a] * basis[static_cast<size_t>(i)][a];
        unexplained.add_squares(value * value, static_cast<double>(mine.row(i)[k]) * mine.row(i)[k]);
      }
    }
    const double residual = unexplained.relative();
    if (probe.good(residual))
      return report.add(
          "linear.weight_quantised", fmt::format("W with a factor of its own for each group of {} inputs", group),
          "the scales belong to other groups: check the size and the order of the quantisation groups", residual, 1.6);
  }
  return false;
}

}  // namespace

bool search_changed_weight(const LinearProbe& probe, const LinearReport& report, Findings& out) {
  return search_zeros(probe, report) || search_turned(probe, report) || search_packed_rows(probe, report) ||
         search_scales(probe, report) || search_orders(probe, report) || search_input_parts(probe, report) ||
         search_quantised_as_held(probe, report) || search_precision_of_weight(probe, report) ||
         search_group_scales(probe, report) || search_quantised_otherwise(probe, report) ||
         search_low_rank(probe, report) || search_column_scales(probe, report, out) ||
         search_group_steps(probe, report);
}

bool search_changed_input(const LinearProbe& probe, const LinearReport& report) {
  const Values& x = probe.input();
  double left = 0;
  if (const Format format = first_fitting(number_formats(), [&](const NumberFormat& next) {
        return probe.good(left = probe.candidate_with_input(in_format(x, &next)));
      }))
    return report.add(format->cause, fmt::format("the same with x rounded to {} first", format->name),
                      "do not cast the input of this layer", left, 1, Blame::kNone);
  for (const bool bias : {false, true})
    if (const Format format = first_fitting(number_formats(), [&](const NumberFormat& next) {
          return probe.good(left = probe.candidate_in(&next, &next, bias ? &next : nullptr));
        }))
      return report.add(format->cause, fmt::format("the same with x and W rounded to {} first", format->name),
                        "multiply in the reference's precision", left, 1.1, Blame::kNone);
  if (probe.weight().rows() == probe.weight().last()) {
    const std::vector<int64_t> all = sample_indices(probe.weight().rows(), probe.weight().rows());
    Values once = probe.product(all);
    for (int64_t i = 0; i < once.rows() && probe.bias(); ++i)
      for (size_t j = 0; j < all.size(); ++j) once.row(i)[j] += (*probe.bias())[j];
    if (probe.good(left = probe.candidate_with_input(once)))
      return report.add("linear.twice", "the same once more on its own result", "apply the layer once", left, 1,
                        Blame::kNone);
  }
  for (const ElementFunction& function : element_functions().subspan(1)) {
    if (!function.is_activation) continue;
    Values changed = x;
    for (float& value : changed.v) value = static_cast<float>(function.f(value));
    if (const double residual = probe.candidate_with_input(changed); probe.good(residual))
      return report.add("activation.added", fmt::format("the same on {} of its input", function.name),
                        fmt::format("remove {} before this layer", function.name), residual, 1, Blame::kNone);
  }
  for (const bool centred : {false, true}) {
    Values normal = x;
    for (int64_t i = 0; i < x.rows(); ++i) {
      double sum = 0, squares = 0;
      for (const float value : x.row(i)) sum += value;
      const double n = static_cast<double>(x.last()), mean = centred ? sum / n : 0;
      for (const float value : x.row(i)) squares += (value - mean) * (value - mean);
      const double factor = 1 / std::sqrt(squares / n + 1e-6);
      for (float& value : normal.row(i)) value = static_cast<float>((value - mean) * factor);
    }
    if (const double residual = probe.candidate_with_input(normal); probe.good(residual))
      return report.add("norm.added", fmt::format("the same on the {} of its input", centred ? "LayerNorm" : "RMSNorm"),
                        "do not normalise before this layer", residual, 1, Blame::kNone);
  }
  return false;
}

}  // namespace lockstep
