// The candidate's norm is the reference's but for a factor of each row. Solved for, those factors tell the statistic
// they come from: rounded to a poorer format, with another eps or count, or of some of the channels only.
#include <algorithm>
#include <cmath>

#include "diagnose/case/thresholds.h"
#include "diagnose/norm/norm_probe.h"
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

EditName held_in_poorer(Format format) {
  return {format->cause, "normalise in f32 and cast afterwards"};
}

}  // namespace

// factor = (counted * mean square)^power: the root multiplied by, or not taken, or taken twice.
std::optional<EditedForm<NormParams>> NormProbe::by_power(const NormParams& r, const std::vector<double>& factor,
                                                          const std::vector<double>& squares) const {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (size_t i = 0; i < factor.size(); ++i) {
    const double x = std::log(squares[i] + r.eps), y = std::log(factor[i]);
    ++n, sx += x, sy += y, sxx += x * x, sxy += x * y;
  }
  const double spread = sxx / n - sx / n * (sx / n);
  if (!(spread > 1e-6)) return std::nullopt;  // rows of one size tell no power
  const double slope = (sxy / n - sx / n * (sy / n)) / spread, power = std::nearbyint(4 * slope) / 4;
  if (power == r.power || power == 0 || std::fabs(slope - power) > 0.02) return std::nullopt;
  EditedForm<NormParams> out{r};
  out.form.power = power;
  const double counted = std::exp((sy - power * sx) / n / power);
  if (std::fabs(counted - 1) > 1e-3) out.form.counted = counted;
  out.residual = measure(true, out.form);
  if (!failing_.explains_candidate(out.residual)) return std::nullopt;
  out.names = {{"norm.kind", (power > 0 ? "divide by the root, do not multiply by it: "
                                        : "divide by the root of the mean of the squares: ") +
                                 formula(r)}};
  return out;
}

EditedForm<NormParams> NormProbe::by_row_factor(const NormParams& r) const {
  const EditedForm<NormParams> none{r};
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
  const double left = unexplained.relative();
  if (!failing_.explains_candidate(left)) return none;
  NormParams out = r;
  const auto squares_with = [&](double eps) {  // the mean of the squares that these factors come from
    std::vector<double> made;
    for (const double f : factor) made.push_back(1 / (f * f) - eps);
    return made;
  };
  // Where everything is in a poor format the factors are too: that says nothing.
  if (failing_.tolerance < 2e-4) {
    if ((out.factor =
             first_fitting(half_formats(), [&](const NumberFormat& f) { return all_in(factor, f, kExactFactor); })))
      return {out, left, {held_in_poorer(out.factor)}};
    for (const double eps : {r.eps, 0.0})
      if ((out.squares = first_fitting(
               half_formats(), [&](const NumberFormat& f) { return all_in(squares_with(eps), f, 2 * kExactFactor); })))
        return {out, left, {held_in_poorer(out.squares)}};
  }
  const auto [smallest, greatest] = std::minmax_element(factor.begin(), factor.end());
  const auto [low, high] = std::minmax_element(squares.begin(), squares.end());
  if (*greatest<(1 + 1e-4) * *smallest&& * high> 1.01 * *low) {
    out.span = NormSpan::kOneRow;
    return {out, left, {{"norm.axis", "normalise over the channels instead"}}};
  }
  if (auto powered = by_power(r, factor, squares)) return *std::move(powered);
  // 1/factor^2 = counted * mean square + the reference's eps.
  const std::vector<double> own = squares_with(0);
  LineFit shares;  // of each row's own: then each counts alike, however large
  for (size_t i = 0; i < rows; ++i) shares.add(squares[i] / own[i], 1 - r.eps / own[i]);
  out.counted = shares.factor(1);
  if (const double residual = measure(true, out);
      failing_.explains_candidate(residual) && std::fabs(out.counted - 1) > 10 * failing_.tolerance)
    return {out, residual, {{"norm.factor", "divide the sum of the squares by the number of channels: " + formula(r)}}};
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
    out.least = least;
    if (const double residual = measure(true, out); failing_.explains_candidate(residual))
      return {out, residual, {{"norm.eps", "add eps to the mean of the squares, do not hold it to a smallest value"}}};
    out.least = 0;
  }
  for (const int64_t part : {channels_ / 2, channels_ / 4, 3 * channels_ / 4, channels_ - 1})
    for (const int64_t side : {part, -part}) {
      out.part = side;
      if (const double residual = part > 1 ? measure(true, out) : INFINITY; failing_.explains_candidate(residual))
        return {out, residual, {{"norm.axis", "take the statistic of all channels: " + formula(r)}}};
    }
  return none;
}

}  // namespace lockstep
