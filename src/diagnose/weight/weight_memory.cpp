#include "diagnose/weight/weight_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

std::vector<int64_t> block_sizes(int64_t n) {  // 1: no blocks
  std::vector<int64_t> out;
  for (int64_t size = 1; 2 * size <= n; ++size)
    if (n % size == 0) out.push_back(size);
  return out;
}

std::string block_words(int64_t rows, int64_t columns) {
  return rows == 1      ? fmt::format("blocks of {} columns", columns)
         : columns == 1 ? fmt::format("blocks of {} rows", rows)
                        : fmt::format("blocks of {} rows x {} columns", rows, columns);
}

}  // namespace

int64_t WeightMemory::source(const Shape& shape, int64_t row, int64_t i) const {
  const int64_t width = shape[1], all = shape[0] * width, b = tile, across = b ? width / b : 0;
  const int64_t at = row * width + i;
  if (kind == kBlocks) {
    int64_t rest = at, from = 0;
    for (size_t k = 4; k-- > 0;) from += rest % sizes[k] * steps[k], rest /= sizes[k];
    return from;
  }
  if (tile == 0) return ((at + offset) % all + all) % all;
  if (kind == kTurned) return (row / b * b + i % b) * width + i / b * b + row % b;
  if (kind == kUntiled)  // kept tile by tile, read row by row
    return ((row / b * across + i / b) * b + row % b) * b + i % b;
  // kept row by row, read tile by tile
  const int64_t tile_at = at / (b * b), inside = at % (b * b);
  return (tile_at / across * b + inside / b) * width + tile_at % across * b + inside % b;
}

std::vector<WeightMemory> weight_memories(const Shape& shape) {
  std::vector<WeightMemory> out;
  const int64_t rows = shape[0], width = shape[1];
  for (const int64_t size : {1, 2, 4, 8, 16, 32, 64, 128, 256})
    for (const int64_t offset : {size, -size}) {
      WeightMemory memory;
      memory.words = fmt::format("W read {} elements too {}", size, offset > 0 ? "late" : "early");
      memory.fix = "check where the tensor's bytes begin: the length of the header, the offset of the entry";
      memory.offset = offset;
      if (size < width) out.push_back(memory);
    }
  for (const int64_t b : {8, 16, 32, 64, 128}) {
    if (rows % b || width % b || (rows == b && width == b)) continue;
    WeightMemory memory;
    memory.tile = b;
    memory.turned = true, memory.kind = WeightMemory::kTurned;
    memory.words = fmt::format("W with each tile of {0} x {0} transposed", b),
    memory.fix = "do not transpose the tiles";
    out.push_back(memory);
    memory.turned = false, memory.kind = WeightMemory::kTiled;
    memory.words = fmt::format("W's rows read as if they lay in tiles of {0} x {0}", b);
    memory.fix = "the weight lies row by row: read it so";
    out.push_back(memory);
    memory.kind = WeightMemory::kUntiled;
    memory.words = fmt::format("W's tiles of {0} x {0} read as if they were rows", b);
    memory.fix = "put the tiles of the weight together first";
    out.push_back(memory);
  }
  return out;
}

std::vector<WeightMemory> weight_blocks(const Shape& shape) {
  std::vector<WeightMemory> out;
  const int64_t rows = shape[0], columns = shape[1];
  for (const int64_t b : block_sizes(rows))
    for (const int64_t c : block_sizes(columns)) {
      if (b == 1 && c == 1) continue;
      const std::array<int64_t, 4> factors{rows / b, b, columns / c, c}, strides{b * columns, columns, c, 1};
      std::array<size_t, 4> order{0, 1, 2, 3};
      while (std::next_permutation(order.begin(), order.end())) {
        // Blocks that stay together are no blocks, and a factor of 1 may stand anywhere: both come up elsewhere.
        const auto follows = [&](size_t first, size_t second) {
          const auto at = std::find(order.begin(), order.end(), first);
          return at + 1 != order.end() && *(at + 1) == second;
        };
        if ((b == 1) != follows(0, 1) || (c == 1) != follows(2, 3)) continue;
        WeightMemory memory;
        memory.kind = WeightMemory::kBlocks;
        std::array<int64_t, 4> laid{};  // steps of the factors once they lie in this order
        for (int64_t k = 3, step = 1; k >= 0; --k) {
          const size_t factor = order[static_cast<size_t>(k)];
          laid[factor] = step, step *= factors[factor];
        }
        for (size_t k = 0; k < 4; ++k) memory.sizes[k] = factors[order[k]], memory.steps[k] = strides[order[k]];
        memory.words = fmt::format("W repacked in {} and read row by row", block_words(b, c));
        memory.fix = "put the rows and columns of the repacked weight back, or give it to the kernel it was made for";
        out.push_back(memory);
        memory.sizes = factors, memory.steps = laid;
        memory.words = fmt::format("W's rows read as if they were repacked in {}", block_words(b, c));
        memory.fix = "the weight lies row by row: read it so, or repack it first";
        out.push_back(memory);
      }
    }
  return out;
}

Values rows_in_memory(const WeightMemory& memory, const Values& weight, const std::vector<int64_t>& rows,
                      size_t count) {
  Values out = make_values({static_cast<int64_t>(count), weight.last()});
  for (size_t k = 0; k < count; ++k) {
    const std::span<float> into = out.row(static_cast<int64_t>(k));
    for (size_t i = 0; i < into.size(); ++i)
      into[i] = weight.v[static_cast<size_t>(memory.source(weight.shape, rows[k], static_cast<int64_t>(i)))];
  }
  return out;
}

}  // namespace lockstep
