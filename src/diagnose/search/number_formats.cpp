#include "diagnose/search/number_formats.h"

#include "measure/values.h"

namespace lockstep {
namespace {

const NumberFormat kFormats[] = {
    {"precision.bf16", "bfloat16", [](float x) { return float_from(bfloat16_from(x)); }, 0x1p-8},
    {"precision.f16", "float16", [](float x) { return float_from(half_from(x)); }, 0x1p-11},
    {"precision.f8_e4m3", "float8 e4m3", [](float x) { return float_from(float8_e4m3_from(x)); }, 0x1p-4},
    {"precision.f8_e5m2", "float8 e5m2", [](float x) { return float_from(float8_e5m2_from(x)); }, 0x1p-3},
};

}  // namespace

std::span<const NumberFormat> number_formats() {
  return kFormats;
}

std::span<const NumberFormat> half_formats() {
  return number_formats().first(2);
}

Format format_of(DType dtype) {
  return dtype == DType::kBF16 ? &kFormats[0] : dtype == DType::kF16 ? &kFormats[1] : nullptr;
}

Values in_format(Values x, Format format) {
  if (format)
    for (float& value : x.v) value = format->round(value);
  return x;
}

}  // namespace lockstep
