// Formats poorer than float that a port may hold a value in, on the way or at the end; one list for every family that
// looks for them.
#pragma once
#include <span>

#include "diagnose/case/causes.h"
#include "measure/values.h"

namespace lockstep {

struct NumberFormat {
  Cause cause;
  const char* name;  // "bfloat16"
  float (*round)(float);
  double relative;  // largest relative error of one rounding
};
using Format = const NumberFormat*;  // null: as it is

std::span<const NumberFormat> number_formats();  // the two of 16 bits, then those of 8
std::span<const NumberFormat> half_formats();    // of 16 bits: what models are computed in
Format format_of(DType dtype);                   // null: float or finer, or no such

inline double in_format(double x, Format format) {
  return format ? static_cast<double>(format->round(static_cast<float>(x))) : x;
}
Values in_format(Values x, Format format);

// The first format for which `fits` holds: the finer ones come first, and what fits one of them needs no coarser. Null:
// none.
template <typename Fits>
Format first_fitting(std::span<const NumberFormat> formats, Fits&& fits) {
  for (const NumberFormat& format : formats)
    if (fits(format)) return &format;
  return nullptr;
}

}  // namespace lockstep
