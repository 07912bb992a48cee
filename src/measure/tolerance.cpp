#include "measure/tolerance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <limits>
#include <vector>

#include "base/decimal.h"
#include "base/error.h"
#include "base/names.h"

namespace lockstep {
namespace {

struct Row {
  DType dtype;
  double absolute, relative;
};

// The table. f64, f32, f16 and bf16 are those of torch.testing.assert_close, which porters know; fp8 allows one step of
// the format (twice its unit roundoff). Integers and bool must be equal. Finest first.
constexpr std::array<Row, 6> kTable = {{
    {DType::kF64, 1e-7, 1e-7},
    {DType::kF32, 1e-5, 1.3e-6},
    {DType::kF16, 1e-5, 1e-3},
    {DType::kBF16, 1e-5, 1.6e-2},
    {DType::kF8E4M3, 1e-3, 0.125},
    {DType::kF8E5M2, 1e-3, 0.25},
}};

constexpr std::array<Band, 5> kBands = {{
    {"identical", 1e-6, "the same arithmetic"},
    {"high", 1e-4, "high precision: the same mathematics in another order"},
    {"acceptable", 1e-3, "acceptable off the critical path"},
    {"suspect", 1e-2, "too large for rounding, too small to be sure: look closer"},
    {"bug", std::numeric_limits<double>::infinity(), "a bug"},
}};

size_t row_of(DType dtype) {
  for (size_t i = 0; i < kTable.size(); ++i)
    if (kTable[i].dtype == dtype) return i + 1;
  return 0;  // integers and bool: finer than every float
}

bool parse_number(std::string_view text, double& value) {
  const auto [end, error] = read_decimal(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 &&
         value < std::numeric_limits<double>::infinity();
}

}  // namespace

Tolerance default_tolerance(DType reference, DType candidate) {
  const size_t row = std::max(row_of(reference), row_of(candidate));
  if (row == 0) return {};
  const Row& found = kTable[row - 1];
  return {std::string(dtype_name(found.dtype)), found.absolute, found.relative};
}

std::span<const Band> tolerance_bands() {
  return kBands;
}

const Band& band_of(double max_abs) {
  for (const Band& band : kBands)
    if (max_abs <= band.max_abs) return band;
  return kBands.back();  // NaN
}

std::optional<Tolerance> parse_tolerance(std::string_view text) {
  if (text == "default") return std::nullopt;
  if (text == "exact") return Tolerance{};
  std::vector<std::string> names = {"default", "exact"};
  for (const Band& band : kBands) {
    if (band.max_abs == std::numeric_limits<double>::infinity()) continue;  // "bug" would accept everything
    if (text == band.name) return Tolerance{std::string(text), band.max_abs, 0};
    names.emplace_back(band.name);
  }
  Tolerance tolerance{std::string(text), 0, 0};
  const size_t comma = text.find(',');
  if (parse_number(text.substr(0, comma), tolerance.absolute) &&
      (comma == std::string_view::npos || parse_number(text.substr(comma + 1), tolerance.relative)))
    return tolerance;
  const std::vector<std::string> near = nearest_names(text, names, 1);
  fail(Code::kUsage, "tolerance", fmt::format("'{}' is no tolerance", text),
       {.expected = fmt::format("{}, ABS or ABS,REL", fmt::join(names, ", ")),
        .hint = near.empty() ? "--tolerance 1e-5,1e-3" : "--tolerance " + near[0]});
}

}  // namespace lockstep
