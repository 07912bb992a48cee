#include "diagnose/norm/norm_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep {

void normalise(double* x, int64_t n, int64_t stride, const NormParams& p) {
  double sum = 0, squares = 0, absolute = 0, largest = 0;
  const int64_t first = p.part < 0 ? std::max<int64_t>(0, n + p.part) : 0;
  const int64_t last = p.part > 0 ? std::min(n, p.part) : n;
  for (int64_t i = first; i < last; ++i) sum += in_format(x[i * stride], p.statistic);
  const double count = static_cast<double>(last - first);
  const bool centred = p.kind == NormKind::kLayer || p.kind == NormKind::kCentred || p.kind == NormKind::kSample ||
                       p.kind == NormKind::kVariance || p.kind == NormKind::kMeanKept;
  const double mean = centred ? sum / count : 0;
  for (int64_t i = first; i < last; ++i) {
    const double d = in_format(x[i * stride], p.statistic) - mean;
    squares = in_format(squares + in_format(d * d, p.square), p.sum);
    absolute += std::fabs(d), largest = std::max(largest, std::fabs(d));
  }
  squares = count * std::max(p.least, in_format(p.counted * squares / count, p.squares));
  const auto root = [&](double variance) {
    if (p.power != NormParams{}.power) return std::pow(variance + p.eps, p.power);
    return p.eps_outside ? 1 / (std::sqrt(variance) + p.eps) : 1 / std::sqrt(variance + p.eps);
  };
  double factor = 1;
  switch (p.kind) {
    case NormKind::kRms:
    case NormKind::kLayer:
    case NormKind::kMeanKept:
    case NormKind::kCentredRms:
      factor = root(squares / count);
      break;
    case NormKind::kSample:
      factor = root(squares / std::max(1.0, count - 1));
      break;
    case NormKind::kVariance:
      factor = 1 / (squares / count + p.eps);
      break;
    case NormKind::kUnit:
      factor = 1 / std::sqrt(std::max(squares, 1e-24));
      break;
    case NormKind::kMeanAbs:
      factor = 1 / (absolute / count + p.eps);
      break;
    case NormKind::kLargest:
      factor = 1 / (largest + p.eps);
      break;
    case NormKind::kNone:
    case NormKind::kCentred:
      break;
  }
  factor = in_format(factor, p.factor);
  const double taken = p.kind == NormKind::kMeanKept ? 0 : p.kind == NormKind::kCentredRms ? sum / count : mean;
  for (int64_t i = 0; i < n; ++i) x[i * stride] = (x[i * stride] - taken) * factor;
}

double weight_factor(WeightUse use, double w) {
  switch (use) {
    case WeightUse::kPlain:
      return w;
    case WeightUse::kOnePlus:
      return 1 + w;
    case WeightUse::kTwice:
      return w * w;
    case WeightUse::kInverse:
      return w == 0 ? 0 : 1 / w;
    case WeightUse::kNone:
    case WeightUse::kBefore:
      break;
  }
  return 1;
}

const char* kind_name(NormKind kind) {
  static const char* const kNames[] = {"RMSNorm",
                                       "LayerNorm",
                                       "x",
                                       "x / ||x||",
                                       "x - mean(x)",
                                       "(x - mean) / variance",
                                       "LayerNorm with n - 1",
                                       "x / mean|x|",
                                       "x / max|x|",
                                       "x / std(x), the mean kept",
                                       "(x - mean) / rms(x)"};
  return kNames[static_cast<size_t>(kind)];
}

const char* span_name(NormSpan span) {
  static const char* const kNames[] = {"",
                                       " over all heads together",
                                       " over the tokens",
                                       " over the whole tensor",
                                       " in groups of channels",
                                       " in groups of channels over all tokens",
                                       " along another axis",
                                       " by one row's statistic for all"};
  return kNames[static_cast<size_t>(span)];
}

std::string formula(const NormParams& p) {
  std::string out = kind_name(p.kind);
  if (p.kind == NormKind::kRms || p.kind == NormKind::kLayer)
    out += fmt::format("(x, eps {:g}{})", p.eps, p.eps_outside ? " outside the root" : "");
  out += p.groups > 1                ? fmt::format(" in {} groups of channels{}", p.groups,
                                    p.span == NormSpan::kGroupsOfAll ? " over all tokens" : "")
         : p.span == NormSpan::kAxis ? fmt::format(" along axis {}", p.axis)
                                     : span_name(p.span);
  if (p.part) out += fmt::format(" by the {} {} channels alone", p.part > 0 ? "first" : "last", std::abs(p.part));
  if (p.least > 0) out += fmt::format(" with a mean of squares of {:.4g} or more", p.least);
  if (p.power == 0.5)
    out += " (multiplied by the root, not divided by it)";
  else if (p.power != NormParams{}.power)
    out += fmt::format(" (multiplied by the mean of squares to the power {:g})", p.power);
  if (p.counted != 1) out += fmt::format(" with a mean of squares {:.4g} times too large", p.counted);
  const std::string weight = p.weight.empty() ? "weight" : p.weight;
  if (p.use == WeightUse::kPlain) out += " * " + weight;
  if (p.use == WeightUse::kOnePlus) out += " * (1 + " + weight + ")";
  if (p.use == WeightUse::kTwice) out += " * " + weight + "^2";
  if (p.use == WeightUse::kInverse) out += " / " + weight;
  if (p.use == WeightUse::kBefore) out += ", x multiplied by " + weight + " before";
  if (!p.bias) out += ", without bias";
  if (p.twice) out += ", and the same once more on the result";
  const std::pair<Format, const char*> held[] = {{p.input, "x"},
                                                 {p.squares, "the mean of the squares"},
                                                 {p.factor, "the factor of each row"},
                                                 {p.normal, "its result"},
                                                 {p.weighted, "the weight"},
                                                 {p.statistic, "x for the statistic"},
                                                 {p.square, "the squares"},
                                                 {p.sum, "the sum of the squares"}};
  for (const auto& [format, what] : held)
    if (format) out += fmt::format(", {} in {}", what, format->name);
  return out;
}

}  // namespace lockstep
