#include "report/tensor_maps.h"

#include <algorithm>
#include <cmath>

#include "measure/value_histogram.h"

namespace lockstep {
namespace {

constexpr double kMapBits = 12e6;  // that the packed maps of a report may take
constexpr int64_t kSmallestMap = 12;
constexpr int kFewLevels = 15;                   // of maps so small that nobody tells more apart
constexpr double kFewBits = 3.9, kManyBits = 7;  // that a cell takes once it is packed
constexpr char kNotFinite = -128;
constexpr double kCountScale = 12;          // of the logarithm of a count
constexpr int64_t kReportValues = 1 << 18;  // of a tensor that its histogram counts: a report has thousands of them

}  // namespace

MapForm map_form(int64_t maps) {
  const double share = kMapBits / static_cast<double>(std::max<int64_t>(1, maps));
  const auto side = [&](double bits) { return static_cast<int64_t>(std::sqrt(share / bits)); };
  const int64_t fine = side(kManyBits);
  if (fine >= 40) return {std::min<int64_t>(fine, kLargestMap.side), 127, 64};
  return {std::clamp(side(kFewBits), kSmallestMap, kLargestMap.side), kFewLevels, 32};
}

void MapBlock::append(const HeatMap& map, float limit, int levels) {
  for (const float cell : map.cells) {
    const double part = limit > 0 ? std::clamp(cell / limit, -1.0f, 1.0f) : 0;
    bytes_ += std::isfinite(cell) ? static_cast<char>(std::lround(levels * part)) : kNotFinite;
  }
}

Json MapBlock::size_of(const HeatMap& map, int levels) const {
  return {map.height, map.width, map.rows, map.columns, bytes_.size(), levels};
}

Json MapBlock::add(const Tensor& reference, const std::optional<Tensor>& candidate, const MapForm& form) {
  if (reference.numel() == 0 || (candidate && candidate->numel() == 0)) return Json();
  Json out = Json::object();
  const auto one = [&](const Tensor& tensor) {
    const HeatMap map = heat_map(tensor, {}, form.side, form.side);
    out["size"].push_back(size_of(map, form.levels));
    out["limits"].push_back(json_number(map.limit()));
    append(map, map.limit(), form.levels);
  };
  if (candidate && candidate->shape() == reference.shape()) {
    const HeatMaps maps = heat_maps(reference, *candidate, {}, form.side, form.side);
    // One scale for both sides, so that they can be told apart.
    const float limit = maps.reference.limit() > 0 ? maps.reference.limit() : maps.candidate.limit();
    out["size"] = Json::array({size_of(maps.reference, form.levels)});
    out["limits"] = {json_number(limit), json_number(limit), json_number(maps.difference.limit())};
    append(maps.reference, limit, form.levels), append(maps.candidate, limit, form.levels);
    append(maps.difference, maps.difference.limit(), form.levels);
  } else {
    one(reference);
    if (candidate) one(*candidate);
  }
  const Tensor* const sides[] = {&reference, candidate ? &*candidate : nullptr};
  if (const auto histogram = value_histogram({sides, candidate ? size_t{2} : size_t{1}}, form.bins, kReportValues)) {
    out["histogram"] = {json_number(histogram->low),
                        json_number(histogram->high),
                        histogram->sampled ? histogram->looked_at : 0,
                        bytes_.size(),
                        form.bins,
                        histogram->counts.size()};
    for (const std::vector<uint32_t>& counts : histogram->counts)
      for (const uint32_t count : counts)
        bytes_ += static_cast<char>(static_cast<uint8_t>(std::lround(kCountScale * std::log1p(count))));
  }
  return out;
}

}  // namespace lockstep
