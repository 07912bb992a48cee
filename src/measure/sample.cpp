#include "measure/sample.h"

#include <algorithm>
#include <cstdlib>

#include "base/platform/memory_maps.h"

namespace lockstep {
namespace {

constexpr int64_t kPageBytes = 4096;

// Of neighbours in row-major order, in elements and at most a page: further apart, each has a page of its own.
int64_t distance_of_neighbours(const Tensor& tensor, int64_t page) {
  for (int axis = static_cast<int>(tensor.rank()) - 1; axis >= 0; --axis)
    if (tensor.dim(axis) > 1)
      return std::clamp<int64_t>(std::abs(tensor.strides()[static_cast<size_t>(axis)]), 1, page);
  return 1;
}

// Elements from the first to the last in memory.
int64_t extent_of(const Tensor& tensor) {
  int64_t extent = 1;
  for (size_t axis = 0; axis < tensor.rank(); ++axis)
    extent += (tensor.shape()[axis] - 1) * std::abs(tensor.strides()[axis]);
  return extent;
}

}  // namespace

std::vector<Neighbours> spread_runs(int64_t count, int64_t most, int64_t places) {
  if (count <= most) return {{0, count}};
  std::vector<Neighbours> runs;
  places = std::clamp<int64_t>(places, 1, most);
  const int64_t share = count / places, left = count % places, wanted = most / places;
  for (int64_t k = 0; k < places; ++k) {
    const int64_t begin = k * share + std::min(k, left), size = share + (k < left);
    runs.push_back({begin + (size - wanted) / 2, wanted});
  }
  return runs;
}

int64_t values_to_read(const Tensor& tensor, int64_t rows, int64_t columns, int64_t whole) {
  const int64_t page = kPageBytes / static_cast<int64_t>(dtype_bytes(tensor.dtype()));
  const int64_t distance = distance_of_neighbours(tensor, page), all_columns = tensor.rank() ? tensor.dim(-1) : 1;
  const int64_t row_cost = columns < all_columns ? std::max(columns * distance, page) : columns * distance;
  const bool few = rows <= whole / columns, near = extent_of(tensor) <= whole || rows <= whole / row_cost;
  if (few && near) return rows * columns;
  const int64_t most = std::min(whole, kSampledElements) / std::max<int64_t>(1, row_cost / columns);
  return rows <= most / columns ? rows * columns : std::max<int64_t>(1, most);
}

void fetch_soon(const Tensor& tensor, const std::vector<Neighbours>& runs) {
  if (!tensor.is_contiguous()) return;
  const auto item = static_cast<int64_t>(dtype_bytes(tensor.dtype()));
  for (const Neighbours& run : runs)
    expect_pages(tensor.strided_data() + run.begin * item, static_cast<size_t>(run.count * item));
}

}  // namespace lockstep
