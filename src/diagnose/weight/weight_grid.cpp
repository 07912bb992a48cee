#include "diagnose/weight/weight_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "tensor/float_formats.h"

namespace lockstep {
namespace {

constexpr double kNf4Levels[] = {-1,        -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0,
                                 0.0795803, 0.1609302,  0.2461123,  0.3379152,  0.4407098,  0.5626170,  0.7229568,  1};
constexpr double kFp4Levels[] = {-1, -2 / 3.0, -0.5, -1 / 3.0, -0.25, -1 / 6.0, -0.0052083333, 0,
                                 1,  2 / 3.0,  0.5,  1 / 3.0,  0.25,  1 / 6.0,  0.0052083333};
constexpr double kE2M1Levels[] = {-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6};

double nearest_of(std::span<const double> levels, double x) {
  return *std::min_element(levels.begin(), levels.end(),
                           [&](double a, double b) { return std::fabs(a - x) < std::fabs(b - x); });
}

}  // namespace

std::pair<float, float> GroupEnds::of(int64_t group) {
  std::pair<float, float>& ends = ends_[static_cast<size_t>(group)];
  if (ends == kNotYet) {
    const int64_t width = weight_.last(), across = groups_.per_row(width);
    const int64_t first =
        groups_.through_rows ? group * groups_.size : group / across * width + group % across * groups_.size;
    const int64_t last = groups_.through_rows ? weight_.size() : (group / across + 1) * width;
    const auto begin = weight_.v.begin() + first;
    const auto [low, high] = std::minmax_element(begin, begin + std::min(groups_.size, last - first));
    ends = {*low, *high};
  }
  return ends;
}

GroupEnds::GroupEnds(const Values& weight, WeightGroups groups)
    : weight_(weight),
      groups_(groups),
      ends_(static_cast<size_t>(groups.of(weight.rows() - 1, weight.last() - 1, weight.last()) + 1), kNotYet) {}

Values WeightGrid::rows(const std::vector<int64_t>& of) {
  Values out = make_values({static_cast<int64_t>(of.size()), inputs()});
  for (size_t k = 0; k < of.size(); ++k)
    for (int64_t i = 0; i < inputs(); ++i)
      out.row(static_cast<int64_t>(k))[static_cast<size_t>(i)] =
          static_cast<float>(value(of[k], i, group_of(of[k], i)));
  return out;
}

std::vector<WeightGroups> group_sizes(const Shape& weight) {
  constexpr int64_t kLeastGroup = 8, kMostGroup = 512, kMostThroughRows = 4096;
  const int64_t width = weight.back(), all = checked_numel(weight);
  std::vector<WeightGroups> out;
  const auto add = [&](int64_t size, bool through_rows) {
    const bool known = std::any_of(out.begin(), out.end(), [&](const WeightGroups& g) {
      return g.size == size && g.through_rows == through_rows;
    });
    if (!known) out.push_back({size, through_rows});
  };
  for (const int64_t size : {int64_t{32}, int64_t{64}, int64_t{128}, width, int64_t{16}, int64_t{256}})
    if (width % size == 0) add(size, false);
  for (int64_t size = kLeastGroup; size <= std::min(kMostGroup, width / 2); ++size)
    if (width % size == 0) add(size, false);
  for (int64_t size = 16; size <= kMostThroughRows && 2 * size <= all; size *= 2)
    if (width % size) {
      if (size < width) add(size, false);
      add(size, true);
    }
  return out;
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
    case QuantLevels::kFp4:
      return {largest, 0};
    case QuantLevels::kNf4Mirrored:
      return {-largest, 0};
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
    case QuantLevels::kNf4Mirrored:
      return nearest_of(kNf4Levels, x);
    case QuantLevels::kE2M1:
      return nearest_of(kE2M1Levels, x);
    case QuantLevels::kFp4:
      return nearest_of(kFp4Levels, x);
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
                                       "4 bits (e2m1)",
                                       "4 bits (fp4)",
                                       "4 bits (nf4 with its table mirrored)"};
  const bool floats = levels >= QuantLevels::kE4M3;
  const std::string name = kNames[static_cast<size_t>(levels)];
  return fmt::format("W in {}, {}{}", floats ? name : fmt::format("{} bits", bits),
                     range          ? "one scale for all"
                     : through_rows ? fmt::format("groups of {} counted through all rows", group)
                                    : fmt::format("groups of {}", group),
                     floats ? "" : name);
}

std::vector<Quantiser> quantisers(const Values& w, Format arithmetic) {
  std::vector<Quantiser> out;
  const auto [low, high] = std::minmax_element(w.v.begin(), w.v.end());
  const auto range = std::pair(*low, *high);
  // What holds four numbers in two bytes can be unpacked wrongly only where a row is made of such.
  const bool odd_rows = w.last() % 4 != 0;
  const auto add = [&](int bits, WeightGroups groups, QuantLevels levels, bool whole = false) {
    Quantiser next{bits, groups.size, levels, {}, groups.through_rows, odd_rows, arithmetic};
    next.plain_only = next.plain_only || groups.through_rows || w.last() % groups.size;
    if (whole) next.range = range;
    out.push_back(next);
  };
  const auto fits = [&](int64_t size) { return w.last() % size == 0; };
  for (const int bits : {4, 8, 6, 5, 3, 2})
    for (const int64_t size : {int64_t{32}, int64_t{64}, int64_t{128}, w.last(), int64_t{16}, int64_t{256}})
      for (const QuantLevels levels : {QuantLevels::kAffine, QuantLevels::kSymmetric})
        if (fits(size)) add(bits, {size}, levels);
  for (const QuantLevels levels : {QuantLevels::kE4M3, QuantLevels::kE5M2})
    add(8, {w.last()}, levels), add(8, {w.last()}, levels, true);
  for (const int64_t size : {int64_t{32}, int64_t{64}, int64_t{128}, w.last()}) {
    if (!fits(size)) continue;
    for (const int bits : {4, 8})
      for (const QuantLevels levels : {QuantLevels::kWholeZero, QuantLevels::kFullRange, QuantLevels::kExtreme})
        add(bits, {size}, levels);
    for (const QuantLevels levels :
         {QuantLevels::kE4M3, QuantLevels::kNf4, QuantLevels::kNf4Mirrored, QuantLevels::kE2M1, QuantLevels::kFp4})
      add(4, {size}, levels);
  }
  for (const QuantLevels levels : {QuantLevels::kAffine, QuantLevels::kSymmetric}) add(8, {w.last()}, levels, true);
  // Groups of other sizes; none of the above come again.
  for (const WeightGroups groups : group_sizes(w.shape)) {
    const bool usual = fits(groups.size) && (groups.size == w.last() || groups.size == 16 || groups.size == 256);
    if (fits(groups.size) && (groups.size == 32 || groups.size == 64 || groups.size == 128)) continue;
    for (const int bits : {8, 4})
      for (const QuantLevels levels : {QuantLevels::kSymmetric, QuantLevels::kAffine, QuantLevels::kFullRange})
        if (!usual || levels == QuantLevels::kFullRange) add(bits, groups, levels);
    for (const QuantLevels levels :
         {QuantLevels::kNf4, QuantLevels::kNf4Mirrored, QuantLevels::kFp4, QuantLevels::kE2M1, QuantLevels::kE4M3})
      if (groups.size != w.last()) add(4, groups, levels);
  }
  return out;
}

}  // namespace lockstep
