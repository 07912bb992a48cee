// Pictures of tensors for a report: heat maps of the reference, of yours and of their difference, and the histogram of
// both, small enough that every tensor of a run has them. The cells of all maps are one block of bytes.
#pragma once
#include <optional>
#include <string>

#include "base/json.h"
#include "measure/heat_map.h"

namespace lockstep {

struct MapForm {
  int64_t side = 128;  // most cells along one side
  int levels = 127;    // of colour, in either direction
  size_t bins = 64;    // bars of a histogram
};

inline constexpr MapForm kLargestMap{};

// So that `maps` of them stay within what a report should hold.
MapForm map_form(int64_t maps);

class MapBlock {
 public:
  // A cell is a signed byte in parts of the map's limit, and -128 where a value is not finite. Without a candidate only
  // the reference is shown: the two are identical. Null where there is nothing to show.
  Json add(const Tensor& reference, const std::optional<Tensor>& candidate, const MapForm& form);
  const std::string& bytes() const { return bytes_; }

 private:
  void append(const HeatMap& map, float limit, int levels);
  Json size_of(const HeatMap& map, int levels) const;

  std::string bytes_;
};

}  // namespace lockstep
