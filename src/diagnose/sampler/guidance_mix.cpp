#include "diagnose/sampler/guidance_mix.h"

#include <fmt/format.h>

#include "diagnose/search/fit.h"

namespace lockstep::guidance {

std::string formula(const Params& p) {
  static const char* const kSpans[] = {"",           "the whole",    "each item of the batch",
                                       "each token", "each channel", "each pixel"};
  static const char* const kLengths[] = {"length", "deviation", "sum of absolute values", "largest value"};
  static const char* const kOf[] = {"the combination", "cond", "uncond"};
  static const char* const kHeld[] = {"", ", cond and uncond in ", ", every step in ", ", the combination in "};
  std::string out = fmt::format("uncond + {} (cond - uncond)", number(p.s));
  if (p.fitting != Fitting::kNone) {
    static const char* const kFittings[] = {"", "cond.uncond over its square", "the other's length over its own",
                                            "the other's deviation over its own"};
    out += fmt::format(" with {} times {}, for {}", kOf[static_cast<size_t>(p.fitted)],
                       kFittings[static_cast<size_t>(p.fitting)], kSpans[static_cast<size_t>(p.fitted_by)]);
  }
  if (p.span != Sharing::kNone) {
    out += fmt::format(", {} times ", kSpans[static_cast<size_t>(p.span)]);
    if (p.known) {
      out += fmt::format("the {} of {} over that of {}", kLengths[static_cast<size_t>(p.length)],
                         kOf[static_cast<size_t>(p.over)], kOf[static_cast<size_t>(p.under)]);
      if (p.power != 1) out += fmt::format(" to the power {}", number(p.power));
      if (std::isfinite(p.most)) out += fmt::format(", at most {}", number(p.most));
      if (p.least > 0) out += fmt::format(", at least {}", number(p.least));
      if (p.blend != 1) out += fmt::format(", {} of it with the rest unscaled", number(p.blend));
      if (p.times != 1) out += fmt::format(", and {}", number(p.times));
    } else {
      out += p.factors.size() == 1 ? number(p.factors[0]) : "a factor of its own";
    }
  }
  if (p.exchanged) out += " with cond and uncond exchanged";
  return out + (p.format ? std::string(kHeld[static_cast<size_t>(p.held)]) + p.format->name : "");
}

std::vector<double> ratios(const std::vector<double>& over, const std::vector<double>& under) {
  std::vector<double> out(over.size(), 1);
  for (size_t g = 0; g < out.size(); ++g)
    if (under[g] > 0 && over[g] > 0) out[g] = over[g] / under[g];
  return out;
}

Lengths Mix::lengths(const Values& x, Sharing span) const {
  const size_t n = groups(span);
  std::vector<double> sum(n), squares(n), absolute(n), largest(n), count(n);
  each(span, [&](size_t g, size_t i) {
    const double value = x.v[i];
    sum[g] += value, squares[g] += value * value, absolute[g] += std::fabs(value), ++count[g];
    largest[g] = std::max(largest[g], std::fabs(value));
  });
  std::vector<double> root(n), deviation(n);
  for (size_t g = 0; g < n; ++g) {
    root[g] = std::sqrt(squares[g]);
    deviation[g] = std::sqrt(std::max(0.0, squares[g] - sum[g] * sum[g] / count[g]));
  }
  return {std::move(root), std::move(deviation), std::move(absolute), std::move(largest)};
}

Values Mix::combined(const Params& p) const {
  Values out = a_;
  const Format inputs = p.held == HeldIn::kInputs || p.held == HeldIn::kSteps ? p.format : nullptr,
               steps = p.held == HeldIn::kSteps ? p.format : nullptr;
  for (size_t i = 0; i < out.v.size(); ++i) {
    const double x = in_format(a_.v[i], inputs), y = in_format(b_.v[i], inputs);
    const double guided = in_format(p.s * in_format(x - y, steps), steps);
    out.v[i] = static_cast<float>(in_format(y + guided, p.held == HeldIn::kInputs ? nullptr : p.format));
  }
  return out;
}

Values Mix::result(const Params& p) const {
  Values out = combined(p);
  if (p.span == Sharing::kNone) return out;
  std::vector<double> factors = p.factors;
  if (p.known) {
    const auto kind = static_cast<size_t>(p.length);
    factors = ratios(lengths(p.over, out, p.span)[kind], lengths(p.under, out, p.span)[kind]);
    for (double& factor : factors)
      factor = p.times * (p.blend * std::clamp(std::pow(factor, p.power), p.least, p.most) + 1 - p.blend);
  }
  if (factors.size() != groups(p.span)) return out;
  each(p.span, [&](size_t g, size_t i) { out.v[i] = static_cast<float>(out.v[i] * factors[g]); });
  return out;
}

double Mix::solve_scale(const Values& y, Sharing span) const {
  const size_t n = groups(span);
  std::vector<double> aa(n), ab(n), bb(n), ay(n), by(n), yy(n);
  each(span, [&](size_t g, size_t i) {
    const double a = a_.v[i], b = b_.v[i], t = y.v[i];
    aa[g] += a * a, ab[g] += a * b, bb[g] += b * b, ay[g] += a * t, by[g] += b * t, yy[g] += t * t;
  });
  double weighted = 0, weight = 0;
  for (size_t g = 0; g < n; ++g) {
    const double det = aa[g] * bb[g] - ab[g] * ab[g];
    if (!(det > 1e-9 * aa[g] * bb[g])) continue;
    const double p = (ay[g] * bb[g] - by[g] * ab[g]) / det, q = (by[g] * aa[g] - ay[g] * ab[g]) / det;
    // How well the group says what s is: by the size of its difference of the two.
    const double sure = yy[g] * det / (aa[g] * bb[g]);
    if (std::fabs(p + q) > 1e-6) weighted += sure * p / (p + q), weight += sure;
  }
  return weight > 0 ? weighted / weight : 1;
}

Mix Mix::prepared(const Params& p) const {
  if (p.exchanged) {
    Params own = p;
    own.exchanged = false;
    return Mix(b_, a_, batch_).prepared(own);
  }
  if (p.fitting == Fitting::kNone) return *this;
  Mix out = *this;
  Values& own = p.fitted == Of::kCond ? out.a_ : out.b_;
  const Values& other = p.fitted == Of::kCond ? b_ : a_;
  const size_t n = groups(p.fitted_by);
  std::vector<double> factors(n);
  if (p.fitting == Fitting::kProjection) {
    std::vector<double> both(n), squares(n);
    each(p.fitted_by, [&](size_t g, size_t i) {
      both[g] += static_cast<double>(own.v[i]) * other.v[i], squares[g] += static_cast<double>(own.v[i]) * own.v[i];
    });
    for (size_t g = 0; g < n; ++g) factors[g] = squares[g] > 0 ? both[g] / squares[g] : 1;
  } else {
    const size_t kind = static_cast<size_t>(p.fitting == Fitting::kLength ? Length::kRoot : Length::kDeviation);
    factors = ratios(lengths(other, p.fitted_by)[kind], lengths(own, p.fitted_by)[kind]);
  }
  const Values before = own;
  each(p.fitted_by, [&](size_t g, size_t i) { own.v[i] = static_cast<float>(factors[g] * before.v[i]); });
  return out;
}

size_t Mix::groups(Sharing span) const {
  switch (span) {
    case Sharing::kItem:
      return static_cast<size_t>(batch_);
    case Sharing::kToken:
      return static_cast<size_t>(a_.rows());
    case Sharing::kChannel:
      return static_cast<size_t>(a_.last() * batch_);
    case Sharing::kPixel:
      return static_cast<size_t>(a_.rows() * 4);
    default:
      return 1;
  }
}

}  // namespace lockstep::guidance
