// The candidate's norm is the reference's but for a factor of each row. Solved for, those factors tell the statistic
// they come from: rounded to a poorer format, with another eps or count, or of some of the channels only.
#include <algorithm>
#include <cmath>

#include "diagnose/case/thresholds.h"
#include "diagnose/norm/norm_search.h"
#include "measure/line_fit.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr size_t kFewestRows = 4;

bool all_in(const std::vector<double>& numbers, const NumberFormat& format, double slack) {
  return std::all_of(numbers.begin(), numbers.end(), [&](double x) {
    return std::isfinite(x) && std::fabs(in_format(x, &format) - x) <= slack * std::fabs(x);
  });
}

}  // namespace

NormParams NormSearch::along_other_axes(NormParams usual, const NormParams& r) const {
  if (failing_.explains(usual.residual) || r.span != NormSpan::kChannels) return usual;
  const Shape& shape = failing_.r.shape;
  const int own = channel_axis(failing_.name, shape);
  NormParams out = usual;
  for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis) {
    const int64_t length = shape[static_cast<size_t>(axis)];
    if (axis == own || length < 2) continue;
    int64_t inner = 1;
    for (size_t i = static_cast<size_t>(axis) + 1; i < shape.size(); ++i) inner *= shape[i];
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      NormParams p = r;
      p.kind = kind, p.span = NormSpan::kAxis, p.axis = axis;
      const Values& x = failing_.candidate_of(input_);
      std::vector<double> made(x.v.begin(), x.v.end());
      for (int64_t at = 0; at < x.size() / length; ++at)
        normalise(made.data() + at / inner * inner * length + at % inner, length, inner, p);
      // A root that was written down as a number is that of the channels still.
      const double root = std::sqrt(static_cast<double>(channels_) / static_cast<double>(length));
      for (const double factor : {1.0, root}) {
        NormParams plain = r;
        plain.kind = NormKind::kNone, plain.span = NormSpan::kChannels;
        Values scaled{shape, {}};
        for (const double value : made) scaled.v.push_back(static_cast<float>(factor * value));
        p.residual = measure_from(scaled, plain);
        if (p.residual < 0.97 * out.residual) out = p;
      }
    }
  }
  return out;
}

// factor = (counted * mean square)^power: the root multiplied by, or not taken, or taken twice.
NormParams NormSearch::by_power(const NormParams& r, const std::vector<double>& factor,
                                const std::vector<double>& squares) const {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (size_t i = 0; i < factor.size(); ++i) {
    const double x = std::log(squares[i] + r.eps), y = std::log(factor[i]);
    ++n, sx += x, sy += y, sxx += x * x, sxy += x * y;
  }
  const double spread = sxx / n - sx / n * (sx / n);
  if (!(spread > 1e-6)) return r;  // rows of one size tell no power
  const double slope = (sxy / n - sx / n * (sy / n)) / spread, power = std::nearbyint(4 * slope) / 4;
  if (power == r.power || power == 0 || std::fabs(slope - power) > 0.02) return r;
  NormParams out = r;
  out.power = power;
  const double counted = std::exp((sy - power * sx) / n / power);
  if (std::fabs(counted - 1) > 1e-3) out.counted = counted;
  out.residual = measure(true, out);
  return failing_.explains_candidate(out.residual) ? out : r;
}

NormParams NormSearch::by_row_factor(const NormParams& r) const {
  NormParams none = r;
  none.residual = INFINITY;
  const bool root = r.kind == NormKind::kRms || r.kind == NormKind::kLayer;
  if (!root || r.span != NormSpan::kChannels || r.use == WeightUse::kBefore || r.eps_outside) return none;
  NormParams centred = r;  // what is multiplied by the factor: x, or x without its mean
  centred.kind = r.kind == NormKind::kLayer ? NormKind::kCentred : NormKind::kNone;
  const std::vector<float>* weight = weight_c_ ? &*weight_c_ : nullptr;
  const std::vector<double> x = normal(c_, centred, weight);
  const size_t n = static_cast<size_t>(channels_), rows = x.size() / n;
  if (rows < kFewestRows) return none;
  std::vector<double> factor(rows), squares(rows);
  Residual unexplained;
  for (size_t i = 0; i < rows; ++i) {
    double zz = 0, zy = 0, tt = 0;
    const auto z = [&](size_t j) { return x[i * n + j] * used_weight(r, j); };
    const auto y = [&](size_t j) { return c_.y.v[i * n + j] - (bias_c_ && r.bias ? (*bias_c_)[j] : 0.0); };
    for (size_t j = 0; j < n; ++j) zz += z(j) * z(j), zy += z(j) * y(j), tt += x[i * n + j] * x[i * n + j];
    factor[i] = zz > 0 ? zy / zz : 0, squares[i] = tt / static_cast<double>(n);
    for (size_t j = 0; j < n; ++j) {
      const double d = factor[i] * z(j) - y(j);
      unexplained.add_squares(d * d, y(j) * y(j));
    }
    if (!(factor[i] > 0)) return none;
  }
  NormParams out = r;
  out.residual = unexplained.relative();
  if (!failing_.explains_candidate(out.residual)) return none;
  const auto squares_with = [&](double eps) {  // the mean of the squares that these factors come from
    std::vector<double> made;
    for (const double f : factor) made.push_back(1 / (f * f) - eps);
    return made;
  };
  // Where everything is in a poor format the factors are too: that says nothing.
  if (failing_.tolerance < 2e-4) {
    if ((out.factor =
             first_fitting(half_formats(), [&](const NumberFormat& f) { return all_in(factor, f, kExactFactor); })))
      return out;
    for (const double eps : {r.eps, 0.0})
      if ((out.squares = first_fitting(
               half_formats(), [&](const NumberFormat& f) { return all_in(squares_with(eps), f, 2 * kExactFactor); })))
        return out;
  }
  const auto [smallest, greatest] = std::minmax_element(factor.begin(), factor.end());
  const auto [low, high] = std::minmax_element(squares.begin(), squares.end());
  if (*greatest<(1 + 1e-4) * *smallest&& * high> 1.01 * *low) {
    out.span = NormSpan::kOneRow;
    return out;
  }
  if (const NormParams powered = by_power(r, factor, squares); powered.power != r.power) return powered;
  // 1/factor^2 = counted * mean square + the reference's eps.
  const std::vector<double> own = squares_with(0);
  LineFit shares;  // of each row's own: then each counts alike, however large
  for (size_t i = 0; i < rows; ++i) shares.add(squares[i] / own[i], 1 - r.eps / own[i]);
  out.counted = shares.factor(1);
  out.residual = measure(true, out);
  if (failing_.explains_candidate(out.residual) && std::fabs(out.counted - 1) > 10 * failing_.tolerance) return out;
  out.counted = 1;
  // Held to a smallest mean square in place of an eps: the factor of every smaller row is the same.
  const double least = *std::min_element(own.begin(), own.end());
  const auto near = [](double a, double b) { return std::fabs(a / b - 1) < 1e-4; };
  size_t held = 0, other = 0;
  for (size_t i = 0; i < rows; ++i) {
    if (near(own[i], squares[i] + r.eps) || near(own[i], squares[i])) continue;
    ++(near(own[i], least) && squares[i] < least ? held : other);
  }
  if (held > 1 && other == 0) {
    out.least = least, out.residual = measure(true, out);
    if (failing_.explains_candidate(out.residual)) return out;
    out.least = 0;
  }
  for (const int64_t part : {channels_ / 2, channels_ / 4, 3 * channels_ / 4, channels_ - 1})
    for (const int64_t side : {part, -part}) {
      out.part = side, out.residual = part > 1 ? measure(true, out) : INFINITY;
      if (failing_.explains_candidate(out.residual)) return out;
    }
  return none;
}

}  // namespace lockstep
