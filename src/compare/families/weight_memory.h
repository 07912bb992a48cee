// A weight read from the wrong memory: begun some elements too early or too late, or kept in square tiles that the
// reader knows nothing of.
#pragma once
#include <string>
#include <vector>

#include "compare/values.h"

namespace lockstep {

struct WeightMemory {
  std::string words;  // "W read 8 elements too late"
  std::string fix;
  bool turned = false;  // tiles are transposed, not moved
  int64_t offset = 0;   // elements; else
  int64_t tile = 0;     // the side of a tile and
  enum { kTurned, kTiled, kUntiled } kind = kTurned;

  // Row `row` of the weight [out, in] as such a reader sees it.
  void row_of(const Values& weight, int64_t row, std::span<float> into) const;
};

// All that fit a weight of this size.
std::vector<WeightMemory> weight_memories(const Shape& shape);
Values rows_in_memory(const WeightMemory& memory, const Values& weight, const std::vector<int64_t>& rows, size_t count);

}  // namespace lockstep
