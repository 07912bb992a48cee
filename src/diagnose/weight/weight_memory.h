// A weight read from the wrong memory: begun some elements too early or too late, or kept in tiles or blocks that the
// reader knows nothing of.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "measure/values.h"

namespace lockstep {

struct WeightMemory {
  std::string words;  // "W read 8 elements too late"
  std::string fix;
  bool turned = false;  // tiles are transposed, not moved
  int64_t offset = 0;   // elements; else
  int64_t tile = 0;     // the side of a tile and
  enum { kTurned, kTiled, kUntiled, kBlocks } kind = kTurned;
  std::array<int64_t, 4> sizes = {}, steps = {};  // kBlocks: of the factors in the reader's order, steps in the weight

  // Where such a reader finds element [row, i] of the weight [out, in].
  int64_t source(const Shape& shape, int64_t row, int64_t i) const;
};

// All that fit a weight of this size.
std::vector<WeightMemory> weight_memories(const Shape& shape);
// Rows and columns in blocks of any size that divides them, [rows / b, b, columns / c, c], laid down in every other
// order of these four: rows beside each other as kernels want them repacked, panels of columns, tiles. Many.
std::vector<WeightMemory> weight_blocks(const Shape& shape);
Values rows_in_memory(const WeightMemory& memory, const Values& weight, const std::vector<int64_t>& rows, size_t count);

}  // namespace lockstep
