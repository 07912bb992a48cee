#include "compare/noise_floor.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep {
namespace {

std::string component(const std::string& name) {
  return name.substr(0, name.find('.'));
}

double coarsest_common(const std::map<double, size_t>& counts) {
  size_t total = 0;
  for (const auto& [unit, count] : counts) total += count;
  for (auto it = counts.rbegin(); it != counts.rend(); ++it)
    if (it->second * 5 >= total) return it->first;
  return counts.empty() ? 0 : counts.begin()->first;
}

}  // namespace

RunPrecision::RunPrecision(const RunView& run) {
  std::map<std::string, std::map<double, size_t>> counts;
  std::map<double, size_t> all;
  for (const RecordedTensor& record : run.records) {
    if (!is_floating(record.dtype)) continue;
    ++counts[component(record.key.name)][unit_roundoff(record.dtype)];
    ++all[unit_roundoff(record.dtype)];
  }
  for (const auto& [name, by_unit] : counts) units_[name] = coarsest_common(by_unit);
  coarsest_ = coarsest_common(all);
}

double RunPrecision::unit(const std::string& name) const {
  const auto found = units_.find(component(name));
  return std::max(found == units_.end() ? coarsest_ : found->second, unit_roundoff(DType::kF64));
}

double rounding_floor(double unit, int64_t reduction_length) {
  // Stored results are rounded once or twice; sums are kept in f32 (or in `unit` when that is finer) and lose about
  // half a unit times the square root of their length.
  const double accumulate = std::min(unit, unit_roundoff(DType::kF32));
  return 2 * unit + 0.5 * accumulate * std::sqrt(static_cast<double>(std::max<int64_t>(1, reduction_length)));
}

FloorWalk::Limits FloorWalk::limits(double stage_floor, double input_error, double input_slice) const {
  double error = input_error, slice = input_slice;
  for (const auto& [e, s] : recent_) error = std::max(error, e), slice = std::max(slice, s);
  return {stage_floor + error, stage_floor + std::max(error, slice)};
}

void FloorWalk::pass(const PairError& error) {
  recent_.emplace_back(error.relative, error.worst_slice);
  if (recent_.size() > kMemory) recent_.pop_front();
}

bool is_beyond(const PairError& error, const FloorWalk::Limits& limits, double unit) {
  if (error.identical) return false;
  if (!std::isfinite(error.relative)) return true;
  // However smoothly it came about, an error of this size is not rounding in that precision.
  const double never = std::max(1e-3, unit * 2e4);
  return error.relative > kFloorFactor * limits.floor || error.worst_slice > kSliceFloorFactor * limits.slice_floor ||
         error.relative > never;
}

}  // namespace lockstep
