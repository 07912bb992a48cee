#include "compare/families/weight_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "tensor/float_formats.h"

namespace lockstep {
namespace {

constexpr double kNf4Levels[] = {-1,        -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0,
                                 0.0795803, 0.1609302,  0.2461123,  0.3379152,  0.4407098,  0.5626170,  0.7229568,  1};
constexpr double kE2M1Levels[] = {-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6};

double nearest_of(std::span<const double> levels, double x) {
  return *std::min_element(levels.begin(), levels.end(),
                           [&](double a, double b) { return std::fabs(a - x) < std::fabs(b - x); });
}

}  // namespace

std::pair<float, float> GroupEnds::of(int64_t group) {
  std::pair<float, float>& ends = ends_[static_cast<size_t>(group)];
  if (ends == kNotYet) {
    const auto begin = weight_.v.begin() + group * group_;
    const auto [low, high] = std::minmax_element(begin, begin + group_);
    ends = {*low, *high};
  }
  return ends;
}

std::pair<double, double> Quantiser::scale_of(double low, double high) const {
  const double all = (1 << bits) - 1, half = 1 << (bits - 1), largest = std::max(std::fabs(low), std::fabs(high));
  switch (levels) {
    case QuantLevels::kAffine:
      return {(high - low) / all, low};
    case QuantLevels::kSymmetric:
      return {largest / (half - 1), 0};
    case QuantLevels::kFullRange:
      return {largest / half, 0};
    case QuantLevels::kWholeZero: {
      const double step = (std::max(high, 0.0) - std::min(low, 0.0)) / all;
      return {step, step > 0 ? -std::nearbyint(-std::min(low, 0.0) / step) * step : 0};
    }
    case QuantLevels::kExtreme: {
      const double step = (std::fabs(low) > std::fabs(high) ? low : high) / -half;
      return {step, -half * step};
    }
    case QuantLevels::kE4M3:
      return {largest / 448, 0};
    case QuantLevels::kE5M2:
      return {largest / 57344, 0};
    case QuantLevels::kNf4:
      return {largest, 0};
    case QuantLevels::kE2M1:
      break;
  }
  return {largest / 6, 0};
}

double Quantiser::number_of(double x) const {
  const double all = (1 << bits) - 1, half = 1 << (bits - 1);
  switch (levels) {
    case QuantLevels::kFullRange:
      return std::clamp(std::nearbyint(x), -half, half - 1);
    case QuantLevels::kWholeZero:
    case QuantLevels::kExtreme:
      return std::clamp(levels == QuantLevels::kExtreme ? std::floor(x + 0.5) : std::nearbyint(x), 0.0, all);
    case QuantLevels::kE4M3:
      return float_from(float8_e4m3_from(static_cast<float>(x)));
    case QuantLevels::kE5M2:
      return float_from(float8_e5m2_from(static_cast<float>(x)));
    case QuantLevels::kNf4:
      return nearest_of(kNf4Levels, x);
    case QuantLevels::kE2M1:
      return nearest_of(kE2M1Levels, x);
    default:
      return std::nearbyint(x);
  }
}

std::string Quantiser::words() const {
  static const char* const kNames[] = {", affine",
                                       "",
                                       ", full range",
                                       ", whole zero points",
                                       ", the largest made the lowest",
                                       "float8 e4m3",
                                       "float8 e5m2",
                                       "4 bits (nf4)",
                                       "4 bits (e2m1)"};
  const bool floats = levels >= QuantLevels::kE4M3;
  const std::string name = kNames[static_cast<size_t>(levels)];
  return fmt::format("W in {}, {}{}", floats ? name : fmt::format("{} bits", bits),
                     range ? "one scale for all" : fmt::format("groups of {}", group), floats ? "" : name);
}

std::vector<Quantiser> quantisers(const Values& w) {
  std::vector<Quantiser> out;
  const auto [low, high] = std::minmax_element(w.v.begin(), w.v.end());
  const auto range = std::pair(*low, *high);
  const auto add = [&](int bits, int64_t group, QuantLevels levels, bool whole = false) {
    if (w.last() % group || w.last() % 4) return;
    out.push_back({bits, group, levels, {}});
    if (whole) out.back().range = range;
  };
  for (const int bits : {4, 8, 6, 5, 3, 2})
    for (const int64_t group : {int64_t{32}, int64_t{64}, int64_t{128}, w.last(), int64_t{16}, int64_t{256}})
      for (const QuantLevels levels : {QuantLevels::kAffine, QuantLevels::kSymmetric}) add(bits, group, levels);
  for (const QuantLevels levels : {QuantLevels::kE4M3, QuantLevels::kE5M2})
    add(8, w.last(), levels), add(8, w.last(), levels, true);
  for (const int64_t group : {int64_t{32}, int64_t{64}, int64_t{128}, w.last()}) {
    for (const int bits : {4, 8})
      for (const QuantLevels levels : {QuantLevels::kWholeZero, QuantLevels::kFullRange, QuantLevels::kExtreme})
        add(bits, group, levels);
    for (const QuantLevels levels : {QuantLevels::kE4M3, QuantLevels::kNf4, QuantLevels::kE2M1}) add(4, group, levels);
  }
  for (const QuantLevels levels : {QuantLevels::kAffine, QuantLevels::kSymmetric}) add(8, w.last(), levels, true);
  return out;
}

}  // namespace lockstep
