// Tables of cos and sin by position: angle = position * theta^(-2i/d). What differs: direction, offset, theta, axes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/case/thresholds.h"
#include "diagnose/rotary/rotary_columns.h"
#include "diagnose/rotary/rotary_precision.h"
#include "diagnose/search/fit.h"
#include "diagnose/search/report.h"

namespace lockstep {
namespace {

bool is_unit_circle(const Values& x) {
  if (x.rank() < 3 || x.last() != 2) return false;
  for (size_t i = 0; i + 1 < x.v.size(); i += 2)
    if (std::fabs(std::hypot(x.v[i], x.v[i + 1]) - 1) > 1e-2) return false;
  return x.size() > 0;
}

// Root mean square of the angle left over by a rule.
template <typename Rule>
double misfit(const Angles& c, const Rule& rule) {
  double sum = 0;
  for (int64_t t = 0; t < c.tokens; ++t)
    for (int64_t i = 0; i < c.pairs; ++i) {
      const double d = wrapped(c.at(t, i) - rule(t, i));
      sum += d * d;
    }
  return std::sqrt(sum / static_cast<double>(c.tokens * c.pairs));
}

// Angle by which consecutive tokens differ, where that is the same for all: the frequency of a table over text.
std::vector<double> increments(const Angles& x) {
  std::vector<double> out(static_cast<size_t>(x.pairs), NAN);
  for (int64_t i = 0; i < x.pairs && x.tokens > 2; ++i) {
    const double first = wrapped(x.at(1, i) - x.at(0, i));
    bool same = true;
    for (int64_t t = 2; t < x.tokens && same; ++t)
      same = std::fabs(wrapped(x.at(t, i) - x.at(t - 1, i) - first)) < 1e-3;
    if (same) out[static_cast<size_t>(i)] = first;
  }
  return out;
}

// theta of frequencies f_i = theta^(-i/pairs), by regression of log f on i; 0 when they are no such series.
double theta_of(const std::vector<double>& f, double& misfit) {
  double si = 0, sl = 0, sii = 0, sil = 0;
  int64_t n = 0;
  for (size_t i = 0; i < f.size(); ++i) {
    if (!(f[i] > 1e-7)) continue;
    const double l = std::log(f[i]), x = static_cast<double>(i);
    si += x, sl += l, sii += x * x, sil += x * l, ++n;
  }
  misfit = INFINITY;
  if (n < 3) return 0;
  const double slope = (static_cast<double>(n) * sil - si * sl) / (static_cast<double>(n) * sii - si * si);
  const double start = (sl - slope * si) / static_cast<double>(n);
  misfit = 0;
  for (size_t i = 0; i < f.size(); ++i)
    if (f[i] > 1e-7) misfit = std::max(misfit, std::fabs(std::log(f[i]) - start - slope * static_cast<double>(i)));
  return std::exp(-slope * static_cast<double>(f.size()));
}

std::string theta_words(double theta) {
  const double power = std::log10(theta);
  return std::fabs(power - std::round(power)) < 0.01 ? fmt::format("{:g}", std::pow(10, std::round(power)))
                                                     : number(theta);
}

// Each column's angles as a multiple of the reference's, from the small ones, which have not wrapped. Empty: they are
// none.
std::vector<double> column_factors(const Angles& c, const Angles& r) {
  std::vector<double> out;
  for (int64_t i = 0; i < r.pairs; ++i) {
    double xy = 0, xx = 0, left = 0;
    for (int64_t t = 0; t < r.tokens; ++t)
      if (std::fabs(r.at(t, i)) < 1.5 && std::fabs(c.at(t, i)) < 1.5)
        xy += r.at(t, i) * c.at(t, i), xx += r.at(t, i) * r.at(t, i);
    const double factor = xx > 1e-12 ? xy / xx : 1;
    for (int64_t t = 0; t < r.tokens; ++t)
      if (std::fabs(r.at(t, i)) < 1.5 && std::fabs(c.at(t, i)) < 1.5)
        left = std::max(left, std::fabs(c.at(t, i) - factor * r.at(t, i)));
    if (left > 1e-3) return {};
    out.push_back(factor);
  }
  return out;
}

void search_complex(Case& failing, Findings& out) {
  const Angles r = angles_of(failing.r), c = angles_of(failing.c);
  // An explanation must leave little of the difference: a limit of its own would take small ones for anything.
  const double limit = std::max(3 * failing.tolerance, std::min(2e-3, 0.1 * failing.error));
  const size_t before = out.size();
  search_coarse_angles(failing, c, r, out);
  if (out.size() > before) return;
  const Report report("the table of angles a", 0, out);
  const auto add = [&](Cause cause, const std::string& yours, std::string fix, double residual, double complexity) {
    report.add({cause, std::move(fix)}, yours, residual * failing.tolerance / limit, complexity);
  };
  if (const double left = misfit(c, [&](int64_t t, int64_t i) { return -r.at(t, i); }); left < limit)
    return add("rotary.sign", "-a", "turn the other way: the imaginary part has the wrong sign", left, 0.7);
  if (const double left = misfit(c, [&](int64_t t, int64_t i) { return M_PI / 2 - r.at(t, i); }); left < limit)
    return add("rotary.cos_sin_exchanged", "cos and sin exchanged", "put cos first", left, 0.7);
  // A constant turn of each column is an offset of the position: k times that column's frequency.
  std::vector<double> turn(static_cast<size_t>(r.pairs));
  for (int64_t i = 0; i < r.pairs; ++i) turn[static_cast<size_t>(i)] = wrapped(c.at(0, i) - r.at(0, i));
  if (const double left = misfit(c, [&](int64_t t, int64_t i) { return r.at(t, i) + turn[static_cast<size_t>(i)]; });
      left < limit) {
    const double largest =
        *std::max_element(turn.begin(), turn.end(), [](double a, double b) { return std::fabs(a) < std::fabs(b); });
    return add(
        "rotary.offset", fmt::format("every angle turned on by a constant of its column (largest {:.4g})", largest),
        "the positions start elsewhere: check the offset of the text after the image, and the centring of the grid",
        left, 1);
  }
  // Angles are known up to whole turns: whole multiples can be told, of yours or of the reference's.
  for (const double factor : {2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 16.0, 32.0, 64.0, 100.0, 1000.0}) {
    if (const double left = misfit(c, [&](int64_t t, int64_t i) { return factor * r.at(t, i); }); left < limit)
      return add("rotary.factor", fmt::format("{:g} a", factor), "positions or frequencies carry a factor", left, 1.2);
    // Yours multiplied up has its errors multiplied too; beyond a small part of a turn that would fit anything.
    const double enlarged = std::min(factor * limit, 0.05);
    if (const double left = misfit(r, [&](int64_t t, int64_t i) { return factor * c.at(t, i); }); left < enlarged)
      return add("rotary.factor", fmt::format("a / {:g}", factor), "positions or frequencies carry a factor", limit / 2,
                 1.2);
  }
  for (const double factor : {0.5, 0.001, 2 * M_PI, 1 / (2 * M_PI)})
    if (const double left = misfit(c, [&](int64_t t, int64_t i) { return factor * r.at(t, i); }); left < limit)
      return add("rotary.factor", fmt::format("{:g} * a", factor), "positions or frequencies carry a factor", left,
                 1.2);
  // Backwards along an axis: the angles of a column mirrored about a constant.
  std::vector<double> mirror(static_cast<size_t>(r.pairs));
  for (int64_t i = 0; i < r.pairs; ++i) {
    bool same = true;
    for (int64_t t = 0; t < r.tokens && same; ++t) same = std::fabs(wrapped(c.at(t, i) - r.at(t, i))) < limit;
    mirror[static_cast<size_t>(i)] = same ? NAN : wrapped(c.at(0, i) + r.at(0, i));
  }
  if (const double left = misfit(c,
                                 [&](int64_t t, int64_t i) {
                                   const double m = mirror[static_cast<size_t>(i)];
                                   return std::isnan(m) ? r.at(t, i) : m - r.at(t, i);
                                 });
      left < limit)
    return add("rotary.sign", "a constant minus a in some columns: an axis runs backwards",
               "count positions in the reference's direction", left, 1.1);
  double fit_r = 0, fit_c = 0;
  const double theta_r = theta_of(increments(r), fit_r), theta_c = theta_of(increments(c), fit_c);
  if (theta_r > 0 && theta_c > 0 && fit_r < 0.05 && fit_c < 0.05 && std::fabs(std::log(theta_c / theta_r)) > 0.02)
    add("rotary.theta", fmt::format("theta {} in place of {}", theta_words(theta_c), theta_words(theta_r)),
        fmt::format("set theta to {}", theta_words(theta_r)), 0, 0.8);
  // Over a grid: the first column of each axis turns once a position whatever theta is, the others by a factor of their
  // own.
  const std::vector<double> factors = column_factors(c, r);
  if (!factors.empty() && !(theta_r > 0 && theta_c > 0)) {
    bool unchanged = false, changed = false, one_way = true;
    double sign = 0;
    for (const double factor : factors) {
      if (std::fabs(factor - 1) < 2e-3) {
        unchanged = true;
        continue;
      }
      changed = true;
      one_way = one_way && (sign == 0 || (std::log(std::max(factor, 1e-12)) > 0) == (sign > 0));
      sign = std::log(std::max(factor, 1e-12));
    }
    double least = INFINITY, most = -INFINITY;
    for (const double factor : factors)
      if (std::fabs(factor - 1) >= 2e-3) least = std::min(least, factor), most = std::max(most, factor);
    if (changed && most > 1e-6 && most - least < 5e-3 * std::fabs(most))
      add("rotary.factor", fmt::format("{:.4g} a in some columns: the positions of one axis carry a factor", most),
          "scale the positions of each axis as the reference does", limit / 2, 0.9);
    else if (unchanged && changed && one_way && least > 1e-6)  // columns that stand still are no matter of theta
      add("rotary.theta",
          fmt::format("the angles of each column times a factor of its own, down to {:.3g}, with position and first "
                      "columns alike",
                      *std::min_element(factors.begin(), factors.end())),
          sign < 0 ? "theta is too large: use the reference's" : "theta is too small: use the reference's", 0, 0.9);
  }
  if (out.size() == before)
    if (const PositionFinding columns = compare_columns(c, r, limit); columns.cause)
      return add(columns.cause, columns.yours, columns.fix, columns.misfit, 1);
  // Which columns differ at all: one axis of the grid alone points to its positions.
  std::vector<bool> bad(static_cast<size_t>(r.pairs));
  for (int64_t i = 0; i < r.pairs; ++i) {
    double sum = 0;
    for (int64_t t = 0; t < r.tokens; ++t) sum += std::fabs(wrapped(c.at(t, i) - r.at(t, i)));
    bad[static_cast<size_t>(i)] = sum / static_cast<double>(r.tokens) > limit;
  }
  bool columns_explained = true;
  double worst = 0;
  for (int64_t i = 0; i < r.pairs && columns_explained; ++i) {
    if (!bad[static_cast<size_t>(i)]) continue;
    // Some column of the reference (any frequency, any axis) must carry these very angles: then axes were exchanged.
    double best = INFINITY;
    for (int64_t j = 0; j < r.pairs; ++j) {
      double sum = 0;
      for (int64_t t = 0; t < r.tokens; ++t) {
        const double d = wrapped(c.at(t, i) - r.at(t, j));
        sum += d * d;
      }
      best = std::min(best, std::sqrt(sum / static_cast<double>(r.tokens)));
    }
    worst = std::max(worst, best);
    columns_explained = best < limit;
  }
  if (columns_explained && std::count(bad.begin(), bad.end(), true) > 0)
    return add("rotary.axes_exchanged",
               "each column is another column of the reference: the axes (frame, height, width) are in another order",
               "give each axis its own columns, in the reference's order", worst, 1);
  if (out.size() > before) return;
  if (const PositionFinding positions = compare_positions(c, r, limit); positions.cause)
    add(positions.cause, positions.yours, positions.fix, positions.misfit, 1);
}

// cos or sin alone, [.., tokens, d]: x(t+1) + x(t-1) = 2 cos(f) x(t) holds in each column.
std::vector<double> frequencies(const Values& x) {
  const int64_t d = x.last(), tokens = x.rank() >= 2 ? x.dim(-2) : 0;
  std::vector<double> out(static_cast<size_t>(d), NAN);
  for (int64_t j = 0; j < d && tokens >= 4; ++j) {
    double xy = 0, xx = 0, left = 0;
    const auto at = [&](int64_t t) { return static_cast<double>(x.v[static_cast<size_t>(t * d + j)]); };
    for (int64_t t = 1; t + 1 < tokens; ++t) xy += (at(t + 1) + at(t - 1)) * at(t), xx += at(t) * at(t);
    const double k = xx > 0 ? xy / xx : 2;
    for (int64_t t = 1; t + 1 < tokens; ++t) left = std::max(left, std::fabs(at(t + 1) + at(t - 1) - k * at(t)));
    if (left < 1e-3 && std::fabs(k) <= 2 + 1e-6) out[static_cast<size_t>(j)] = std::acos(std::clamp(k / 2, -1.0, 1.0));
  }
  return out;
}

// Columns cos(t theta^(-i/half)) or sin, over both halves: the theta that fits best. For tables too coarse to read
// frequencies from.
double fitted_theta(const Values& x, double limit) {
  const int64_t half = x.last() / 2, tokens = x.rank() >= 2 ? x.dim(-2) : 0;
  double best = 0, least = INFINITY;
  const auto consider = [&](double theta) {
    double by_cos = 0, by_sin = 0, all = 0;
    for (int64_t i = 0; i < half; ++i) {
      const double f = std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
      for (int64_t t = 0; t < tokens; ++t) {
        const double value = x.v[static_cast<size_t>(t * x.last() + i)], a = static_cast<double>(t) * f;
        by_cos += std::pow(value - std::cos(a), 2), by_sin += std::pow(value - std::sin(a), 2), all += value * value;
      }
    }
    const double left = std::sqrt(std::min(by_cos, by_sin) / std::max(all, 1e-30));
    if (left < least) least = left, best = theta;
  };
  for (double theta = 10; theta < 2e7; theta *= 1.03) consider(theta);
  for (double step = 1.015; step > 1.0005; step = std::sqrt(step)) {
    const double middle = best;
    consider(middle * step), consider(middle / step);
  }
  return least <= limit ? best : 0;
}

// cos and sin of one call as angles, [tokens, d / 2]; no tokens where they are no such pair.
Angles angles_of_pair(const Values& cos, const Values& sin) {
  const int64_t d = cos.last(), half = d / 2;
  Angles out{cos.rank() >= 2 ? cos.dim(-2) : 0, half, {}};
  for (int64_t t = 0; t < out.tokens; ++t)
    for (int64_t i = 0; i < half; ++i) {
      const size_t at = static_cast<size_t>(t * d + i);
      if (std::fabs(std::hypot(cos.v[at], sin.v[at]) - 1) > 1e-2) return {};
      out.a.push_back(std::atan2(sin.v[at], cos.v[at]));
    }
  return out;
}

// Frequencies and positions of a table that comes as cos and sin: two outputs of one call.
void search_both(Case& failing, Findings& out) {
  if (!failing.partner) return;
  for (const size_t other : failing.structure().records_of(failing.module, Role::kOutput, failing.reference_record())) {
    const size_t partner = failing.partner(other);
    if (other == failing.reference_record() || partner == SIZE_MAX) continue;
    const Values &r = failing.load_reference(other), &c = failing.load_candidate(partner);
    if (r.shape != failing.r.shape || c.size() != r.size()) continue;
    Values same_shape = c;
    same_shape.shape = r.shape;
    const bool cos_first = failing.r.v[0] >= r.v[0];  // cos begins with 1, sin with 0
    const auto both = [&](const Values& one, const Values& two) {
      return cos_first ? angles_of_pair(one, two) : angles_of_pair(two, one);
    };
    const Angles of_r = both(failing.r, r), of_c = both(failing.c, same_shape);
    if (of_r.tokens < 3 || of_c.tokens != of_r.tokens) continue;
    const double limit = std::max(3 * failing.tolerance, std::min(2e-3, 0.1 * failing.error));
    PositionFinding found = compare_columns(of_c, of_r, limit);
    if (!found.cause) found = compare_positions(of_c, of_r, limit);
    if (!found.cause) continue;
    Report("the table of angles a", 0, out)
        .add({found.cause, found.fix}, found.yours, found.misfit * failing.tolerance / limit);
    return;
  }
}

void report_theta(double r, double c, double residual, Findings& out) {
  Report("theta " + theta_words(r), 0, out)
      .add({"rotary.theta", "set theta to " + theta_words(r)}, "theta " + theta_words(c), residual, 0.8);
}

void search_real(Case& failing, Findings& out) {
  const std::vector<double> r = frequencies(failing.r), c = frequencies(failing.c);
  const size_t half = r.size() / 2, before = out.size();
  if (half < 3) return;
  const auto first_half = [half](const std::vector<double>& f) {
    return std::vector<double>(f.begin(), f.begin() + static_cast<std::ptrdiff_t>(half));
  };
  const auto even = [half](const std::vector<double>& f) {
    std::vector<double> out;
    for (size_t i = 0; i < half; ++i) out.push_back(f[2 * i]);
    return out;
  };
  double halves_r = 0, halves_c = 0, even_r = 0, even_c = 0;
  const double theta_r = theta_of(first_half(r), halves_r), theta_c = theta_of(first_half(c), halves_c);
  theta_of(even(r), even_r), theta_of(even(c), even_c);
  // cos and sin are two outputs of one call.
  for (const size_t other : failing.structure().records_of(failing.module, Role::kOutput, failing.reference_record()))
    if (other != failing.reference_record() && failing.load_reference(other).size() == failing.c.size() &&
        failing.explains_candidate(relative_error(failing.c.v, failing.load_reference(other).v))) {
      Report("cos, then sin", 0, out)
          .add({"rotary.cos_sin_exchanged", "put cos first"}, "the other way round",
               relative_error(failing.c.v, failing.load_reference(other).v), 0.7);
      return;
    }
  std::vector<double> ratios;
  for (size_t i = 0; i < r.size(); ++i)
    if (r[i] > 1e-3 && c[i] > 1e-3) ratios.push_back(c[i] / r[i]);
  if (ratios.size() >= 3) {
    const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
    if (*most - *least < 2e-2 * *most && std::fabs(*most - 1) > 0.02) {
      Report("angles a", 0, out)
          .add({"rotary.factor"}, fmt::format("{:.4g} a", (*least + *most) / 2), failing.tolerance, 0.9);
      return;
    }
  }
  // Tokens that are not numbered one by one have no frequencies, but for the slowest columns.
  const bool numbered = std::none_of(c.begin(), c.end(), [](double f) { return std::isnan(f); });
  if (numbered && halves_r < kSlowFrequency && halves_c < kSlowFrequency && theta_r > 1 && theta_c > 1 &&
      std::fabs(std::log(theta_c / theta_r)) > 0.1)
    report_theta(theta_r, theta_c, failing.tolerance, out);
  else if (halves_r < kSlowFrequency && even_c < kSlowFrequency && halves_c > kSlowFrequency)
    Report("angles repeated in the second half", 0, out)
        .add({"rotary.style", "concatenate the angles, do not interleave them"}, "repeated side by side",
             failing.tolerance, 0.9);
  if (out.size() == before) search_coarse_table(failing, out);
  if (out.size() == before) search_both(failing, out);
  if (out.size() > before || failing.r.size() > 1 << 18) return;
  const double limit = std::max(2e-3, 2 * failing.tolerance), r_fit = fitted_theta(failing.r, limit),
               c_fit = r_fit > 0 ? fitted_theta(failing.c, limit) : 0;
  if (c_fit > 0 && std::fabs(std::log(c_fit / r_fit)) > 0.1) report_theta(r_fit, c_fit, failing.tolerance, out);
}

}  // namespace

void search_rotary_table(Case& failing, Findings& out) {
  if (!std::isfinite(failing.error) || failing.r.rank() < 2) return;
  if (is_unit_circle(failing.r) && is_unit_circle(failing.c)) return search_complex(failing, out);
  const auto bounded = [](const Values& x) {
    return std::all_of(x.v.begin(), x.v.end(), [](float v) { return std::fabs(v) <= 1.01f; });
  };
  if (bounded(failing.r) && bounded(failing.c)) search_real(failing, out);
}

}  // namespace lockstep
