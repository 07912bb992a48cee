// Copies between layouts. The axes are put into the order of the destination and merged where both sides allow; what is
// left is rows (memcpy), a transpose (done in square tiles, so that both sides use the cache lines they touch) or a
// plain strided loop.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "tensor/convert.h"
#include "tensor/tile_transpose.h"

namespace lockstep {
namespace {

constexpr int64_t kTile = 64;
constexpr size_t kThreadedFromBytes = size_t{1} << 20;

struct Axis {
  int64_t size, from, to;  // strides in bytes
};

// Outermost first. Empty when there is one element.
std::vector<Axis> merged_axes(const Tensor& from, const Tensor& to) {
  const int64_t item = static_cast<int64_t>(dtype_bytes(from.dtype()));
  std::vector<Axis> axes;
  axes.reserve(from.rank() + 2);
  for (size_t i = 0; i < from.rank(); ++i)
    if (from.shape()[i] != 1) axes.push_back({from.shape()[i], from.strides()[i] * item, to.strides()[i] * item});
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return std::abs(a.to) > std::abs(b.to); });
  size_t kept = 0;
  for (size_t i = 1; i < axes.size(); ++i) {
    Axis& outer = axes[kept];
    const Axis& inner = axes[i];
    if (outer.from == inner.from * inner.size && outer.to == inner.to * inner.size)
      outer = {outer.size * inner.size, inner.from, inner.to};
    else
      axes[++kept] = inner;
  }
  if (!axes.empty()) axes.resize(kept + 1);
  return axes;
}

template <typename T>
void copy_line(const std::byte* from, int64_t from_step, std::byte* to, int64_t to_step, int64_t n) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * to_step, from + i * from_step, sizeof(T));
}

// One tile: `a` is the axis along which the destination is dense, `b` the one along which the source is. The tile is
// turned in a small buffer, because walking the source itself across its rows would, with strides of a power of two,
// put every row into the same few cache lines.
template <typename T>
void copy_tile(const std::byte* from, std::byte* to, const Axis& a, const Axis& b, int64_t a_size, int64_t b_size) {
  constexpr size_t kPad = 16 / sizeof(T);  // spreads a column over the cache
  T tile[kTile][kTile + kPad];             // [a, b]
  T turned[kTile][kTile + kPad];           // [b, a]
  for (int64_t i = 0; i < a_size; ++i) std::memcpy(tile[i], from + i * a.from, static_cast<size_t>(b_size) * sizeof(T));
  if (a_size == kTile && b_size == kTile)
    transpose_tile<T, kTile>(tile[0], kTile + kPad, turned[0], kTile + kPad);
  else
    for (int64_t j = 0; j < b_size; ++j)
      for (int64_t i = 0; i < a_size; ++i) turned[j][i] = tile[i][j];
  for (int64_t j = 0; j < b_size; ++j) std::memcpy(to + j * b.to, turned[j], static_cast<size_t>(a_size) * sizeof(T));
}

template <typename Work>
void for_width(size_t item, const Work& work) {
  switch (item) {
    case 1:
      return work(uint8_t{});
    case 2:
      return work(uint16_t{});
    case 4:
      return work(uint32_t{});
    default:
      return work(uint64_t{});
  }
}

// Walks the outer axes in order; started anywhere, so that threads can share the walk.
class Odometer {
 public:
  Odometer(const std::vector<Axis>& axes, int64_t index) : axes_(axes), at_(axes.size()) {
    for (size_t i = axes.size(); i-- > 0;) {
      at_[i] = index % axes[i].size;
      index /= axes[i].size;
      from += at_[i] * axes[i].from;
      to += at_[i] * axes[i].to;
    }
  }
  void next() {
    for (size_t i = axes_.size(); i-- > 0;) {
      from += axes_[i].from;
      to += axes_[i].to;
      if (++at_[i] < axes_[i].size) return;
      from -= axes_[i].size * axes_[i].from;
      to -= axes_[i].size * axes_[i].to;
      at_[i] = 0;
    }
  }

  int64_t from = 0, to = 0;  // byte offsets

 private:
  const std::vector<Axis>& axes_;
  Dims at_;
};

// Calls line(from offset, to offset) for every position of the outer axes.
template <typename Line>
void for_lines(const std::vector<Axis>& outer, int64_t count, bool threaded, const Line& line) {
  const int64_t share = threaded ? std::max<int64_t>(1, count / 64) : count;
#pragma omp parallel for schedule(static) if (threaded)
  for (int64_t begin = 0; begin < count; begin += share) {
    Odometer at(outer, begin);
    for (int64_t i = begin; i < std::min(count, begin + share); ++i, at.next()) line(at.from, at.to);
  }
}

}  // namespace

void copy_strided(const Tensor& from, Tensor& to) {
  if (from.shape() != to.shape() || from.dtype() != to.dtype())
    fail(Code::kInternal, "copy", "shapes or dtypes differ",
         {.expected = to_string(to.shape()), .got = to_string(from.shape())});
  if (from.numel() == 0) return;
  const size_t item = dtype_bytes(from.dtype());
  std::vector<Axis> axes = merged_axes(from, to);
  const std::byte* in = from.strided_data();
  std::byte* out = to.mutable_strided_data();
  const int64_t width = static_cast<int64_t>(item);
  if (axes.empty() || axes.back().to != width) axes.push_back({1, width, width});
  const Axis inner = axes.back();
  axes.pop_back();
  const bool threaded = from.bytes() >= kThreadedFromBytes;

  if (inner.from == width) {  // dense rows on both sides
    // Long rows are cut, so that one huge copy is shared among threads too.
    constexpr int64_t kPiece = int64_t{1} << 18;
    const int64_t row_bytes = inner.size * width, rows = from.numel() / inner.size;
    if (row_bytes % kPiece == 0) {
      axes.push_back({row_bytes / kPiece, kPiece, kPiece});
      return for_lines(axes, rows * (row_bytes / kPiece), threaded,
                       [&](int64_t a, int64_t b) { std::memcpy(out + b, in + a, kPiece); });
    }
    return for_lines(axes, rows, threaded,
                     [&](int64_t a, int64_t b) { std::memcpy(out + b, in + a, static_cast<size_t>(row_bytes)); });
  }

  const auto dense = std::find_if(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.from == width; });
  if (dense != axes.end() && inner.to == width) {
    const Axis across = *dense;
    axes.erase(dense);
    const int64_t a_tiles = (inner.size + kTile - 1) / kTile, b_tiles = (across.size + kTile - 1) / kTile;
    const int64_t outer = from.numel() / inner.size / across.size;
    axes.push_back({b_tiles, kTile * across.from, kTile * across.to});
    axes.push_back({a_tiles, kTile * inner.from, kTile * inner.to});
    for_width(item, [&]<typename T>(T) {
      const int64_t tiles = a_tiles * b_tiles;
      const int64_t share = threaded ? std::max<int64_t>(1, outer * tiles / 64) : outer * tiles;
#pragma omp parallel for schedule(static) if (threaded)
      for (int64_t begin = 0; begin < outer * tiles; begin += share) {
        Odometer at(axes, begin);
        for (int64_t i = begin; i < std::min(outer * tiles, begin + share); ++i, at.next()) {
          const int64_t a_size = std::min(kTile, inner.size - i % a_tiles * kTile);
          const int64_t b_size = std::min(kTile, across.size - i / a_tiles % b_tiles * kTile);
          copy_tile<T>(in + at.from, out + at.to, inner, across, a_size, b_size);
        }
      }
    });
    return;
  }

  for_width(item, [&]<typename T>(T) {
    for_lines(axes, from.numel() / inner.size, threaded,
              [&](int64_t a, int64_t b) { copy_line<T>(in + a, inner.from, out + b, inner.to, inner.size); });
  });
}

}  // namespace lockstep
