#include "diagnose/weight/weight_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "tensor/float_formats.h"

namespace lockstep {
namespace {

// The first bits of a float, the rest dropped.
template <uint32_t Dropped>
float cut_off(float x) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & ~((uint32_t{1} << Dropped) - 1));
}

template <typename From, typename To>
float taken_for(From (*written)(float), float x) {
  return float_from(std::bit_cast<To>(written(x)));
}

struct NumberForm {
  const char *words, *fix;
  bool rounded;
  float (*f)(float);
};

constexpr const char* kReadAs = "read the file's bytes in the dtype its header names";

const NumberForm kNumberForms[] = {
    {"W cut to bfloat16: its last 16 bits dropped, not rounded", "round to the nearest when the weight is cast", true,
     cut_off<16>},
    {"W cut to 10 bits after the point (tf32)", "keep the weight in its own dtype", true, cut_off<13>},
    {"W's bfloat16 bits read as float16", kReadAs, false,
     [](float x) { return taken_for<BFloat16, Half>(bfloat16_from, x); }},
    {"W's float16 bits read as bfloat16", kReadAs, false,
     [](float x) { return taken_for<Half, BFloat16>(half_from, x); }},
    {"W's float8 e4m3 bits read as e5m2", kReadAs, false,
     [](float x) { return taken_for<Float8E4M3, Float8E5M2>(float8_e4m3_from, x); }},
    {"W's float8 e5m2 bits read as e4m3", kReadAs, false,
     [](float x) { return taken_for<Float8E5M2, Float8E4M3>(float8_e5m2_from, x); }},
    {"W in float8 e4m3 with the other bias of its exponent (fn, fnuz): half of it",
     "the two kinds of e4m3 differ by a factor of 2: tell them apart", false,
     [](float x) { return 0.5f * float_from(float8_e4m3_from(x)); }},
    {"W in float8 e4m3 with the other bias of its exponent (fn, fnuz): twice it",
     "the two kinds of e4m3 differ by a factor of 2: tell them apart", false,
     [](float x) { return 2 * float_from(float8_e4m3_from(x)); }},
    {"W without its signs", "keep the sign of the weight", false, [](float x) { return std::fabs(x); }},
    {"W's bfloat16 bytes in the other order", "read the file's bytes low byte first", false,
     [](float x) {
       const uint16_t bits = bfloat16_from(x).bits;
       return float_from(BFloat16{static_cast<uint16_t>(bits << 8 | bits >> 8)});
     }},
    {"W's float16 bytes in the other order", "read the file's bytes low byte first", false,
     [](float x) {
       const uint16_t bits = half_from(x).bits;
       return float_from(Half{static_cast<uint16_t>(bits << 8 | bits >> 8)});
     }},
};

Values centred_rows(const Values& rows) {
  Values out = rows;
  for (int64_t i = 0; i < out.rows(); ++i) {
    double sum = 0;
    for (const float value : out.row(i)) sum += value;
    const float mean = static_cast<float>(sum / static_cast<double>(out.last()));
    for (float& value : out.row(i)) value -= mean;
  }
  return out;
}

Values with_one_scale(const Values& rows, float low, float high, int bits, bool affine) {
  Values out = rows;
  const double levels = affine ? (1 << bits) - 1 : (1 << (bits - 1)) - 1, base = affine ? low : 0;
  const double step =
      affine ? (static_cast<double>(high) - low) / levels : std::max(std::fabs(low), std::fabs(high)) / levels;
  for (float& value : out.v)
    value = static_cast<float>(step > 0 ? base + step * std::nearbyint((value - base) / step) : base);
  return out;
}

// Float8 after the largest of a row, or of all, was brought to the format's largest.
Values in_scaled_f8(const Values& rows, float largest_of_all) {
  constexpr float kLargestE4M3 = 448;
  Values out = rows;
  for (int64_t i = 0; i < out.rows(); ++i) {
    float largest = largest_of_all;
    if (largest_of_all == 0)
      for (const float value : out.row(i)) largest = std::max(largest, std::fabs(value));
    const float scale = largest > 0 ? largest / kLargestE4M3 : 1;
    for (float& value : out.row(i)) value = float_from(float8_e4m3_from(value / scale)) * scale;
  }
  return out;
}

}  // namespace

std::vector<WeightForm> element_forms() {
  std::vector<WeightForm> out;
  for (const NumberForm& form : kNumberForms)
    out.push_back({form.words, form.fix, form.rounded, [f = form.f](const Values& rows) {
                     Values changed = rows;
                     std::transform(changed.v.begin(), changed.v.end(), changed.v.begin(), f);
                     return changed;
                   }});
  out.push_back({"W with the mean of each row taken away", "use the weight as it is in the file", false, centred_rows});
  return out;
}

std::vector<WeightForm> row_forms(const Values& whole) {
  std::vector<WeightForm> out = element_forms();
  const auto [low, high] = std::minmax_element(whole.v.begin(), whole.v.end());
  const float least = *low, most = *high, largest = std::max(std::fabs(least), std::fabs(most));
  const int64_t width = whole.last();
  constexpr const char* kFix = "expected when the candidate is quantised; else load the full weight";
  out.push_back({"W in float8 e4m3, one scale a row", kFix, true, [](const Values& x) { return in_scaled_f8(x, 0); }});
  out.push_back(
      {"W in float8 e4m3, one scale for all", kFix, true, [=](const Values& x) { return in_scaled_f8(x, largest); }});
  std::vector<int64_t> groups{width};
  for (int64_t group = 16; group <= std::min<int64_t>(512, width / 2); ++group)
    if (width % group == 0 && (group % 8 == 0 || group % 9 == 0)) groups.push_back(group);
  for (const int bits : {8, 4, 6, 5, 3, 2})
    for (const bool affine : {false, true}) {
      const char* kind = affine ? ", affine" : "";
      out.push_back({fmt::format("W in {} bits, one scale for all{}", bits, kind), kFix, true,
                     [=](const Values& x) { return with_one_scale(x, least, most, bits, affine); }});
      for (const int64_t group : groups) {
        if (group != width && bits != 8 && bits != 4) continue;
        out.push_back({group == width ? fmt::format("W in {} bits, one scale a row{}", bits, kind)
                                      : fmt::format("W in {} bits, groups of {}{}", bits, group, kind),
                       kFix, true, [=](const Values& x) { return quantised(x, bits, group, affine); }});
      }
    }
  return out;
}

Values quantised(const Values& weight, int bits, int64_t group, bool affine) {
  Values out = weight;
  const int64_t width = weight.last();
  if (group <= 0 || width % group) group = width;
  const double levels = affine ? (1 << bits) - 1 : (1 << (bits - 1)) - 1;
  for (int64_t begin = 0; begin + group <= weight.size(); begin += group) {
    const std::span<float> part(out.v.data() + begin, static_cast<size_t>(group));
    const auto [low, high] = std::minmax_element(part.begin(), part.end());
    if (affine) {
      const double base = *low, step = (static_cast<double>(*high) - base) / levels;
      for (float& value : part)
        value = static_cast<float>(step > 0 ? base + step * std::nearbyint((value - base) / step) : base);
    } else {
      const double step = std::max(std::fabs(*low), std::fabs(*high)) / levels;
      for (float& value : part) value = static_cast<float>(step > 0 ? step * std::nearbyint(value / step) : 0);
    }
  }
  return out;
}

}  // namespace lockstep
