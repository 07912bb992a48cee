#include "diagnose/layout/packing.h"

#include <algorithm>

namespace lockstep {

PatchPlaces::PatchPlaces(const PatchGrid& grid, const PatchOrder& order, const PatchOrder& memory) {
  const std::array<size_t, 5> sizes{static_cast<size_t>(grid.rows), static_cast<size_t>(grid.columns),
                                    static_cast<size_t>(grid.channels), 2, 2};
  std::array<size_t, 5> steps{};
  for (size_t k = 5; k-- > 0; size_ *= sizes[memory[k]]) steps[memory[k]] = size_;
  for (size_t k = 0; k < 5; ++k) sizes_[k] = sizes[order[k]], steps_[k] = steps[order[k]];
}

Values from_packed(const Values& packed, const PatchGrid& grid, const PatchOrder& order, const PatchOrder& memory) {
  const PatchPlaces place(grid, order, memory);
  Values out = packed;
  for (size_t item = 0; item + place.size() <= out.v.size(); item += place.size())
    for (size_t i = 0; i < place.size(); ++i) out.v[item + i] = packed.v[item + place(i)];
  return out;
}

Values to_packed(const Values& other, const PatchGrid& grid, const PatchOrder& order) {
  const PatchPlaces place(grid, order);
  Values out = other;
  for (size_t item = 0; item + place.size() <= out.v.size(); item += place.size())
    for (size_t i = 0; i < place.size(); ++i) out.v[item + place(i)] = other.v[item + i];
  return out;
}

std::string words(const PatchOrder& order, bool of_token) {
  static const char* const kNames[] = {"row of patches", "column of patches", "channel", "row", "column"};
  std::string out;
  const size_t first = of_token ? 2 : 0;
  for (size_t k = first; k < order.size(); ++k) {
    if (k > first) out += ", ";
    out += kNames[order[k]];
    if (!of_token && order[k] > 2) out += " in the patch";
  }
  return out;
}

bool any_patch_order(const PatchOrder& except, const std::function<bool(const PatchOrder&)>& f) {
  PatchOrder order = kPacked;
  do
    if (order != except && f(order)) return true;
  while (std::next_permutation(order.begin(), order.end()));
  return false;
}

}  // namespace lockstep
