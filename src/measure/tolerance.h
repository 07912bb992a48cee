// How close is close enough: one table by dtype, and the bands that people working on ports speak in.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace lockstep {

// A pair differs when |candidate - reference| > absolute + relative * |reference|.
struct Tolerance {
  std::string name = "exact";
  double absolute = 0, relative = 0;
};

// The coarser dtype of the two decides.
Tolerance default_tolerance(DType reference, DType candidate);

// A band is an upper bound of the largest absolute error.
struct Band {
  std::string_view name;
  double max_abs;
  std::string_view meaning;
};
std::span<const Band> tolerance_bands();  // tightest first; the last one has no bound
const Band& band_of(double max_abs);

// "default", "exact", a band's name, "ABS" or "ABS,REL". Error{kUsage} otherwise. "default" gives nothing, because it
// depends on the dtypes of each pair.
std::optional<Tolerance> parse_tolerance(std::string_view text);

}  // namespace lockstep
