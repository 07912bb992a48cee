#include "report/tensor_maps.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/base64.h"
#include "tensor/convert.h"
#include "tensor/element_blocks.h"

namespace lockstep {
namespace {

constexpr int64_t kMapBytes = 12 << 20;          // what the maps of a page may take
constexpr size_t kBins = 64;                     // bars of a histogram
constexpr int64_t kHistogramElements = 1 << 18;  // sampled beyond this
constexpr uint8_t kNotFinite = 0x80;             // -128

// The elements of a tensor as floats, any dtype and strides, a piece at a time.
class FloatReader {
 public:
  explicit FloatReader(const Tensor& tensor) : blocks_(tensor), raw_(kBlockElements * 8) {}
  void read(int64_t begin, int64_t count, float* out) {
    for (int64_t done = 0; done < count; done += kBlockElements) {
      const int64_t size = std::min(kBlockElements, count - done);
      const std::byte* raw = blocks_.raw(begin + done, size, raw_.data());
      convert_elements(raw, blocks_.dtype(), out + done, DType::kF32, size);
    }
  }

 private:
  ElementBlocks blocks_;
  std::vector<std::byte> raw_;
};

// Per column the extremes of the rows that fall into one row of cells. Branch free over a row, so that it vectorises.
class Extremes {
 public:
  Extremes(int64_t rows, int64_t columns, int64_t side)
      : columns_(columns), height_(std::min(rows, side)), width_(std::min(columns, side)) {
    cells_.resize(static_cast<size_t>(height_ * width_));
    high_.assign(static_cast<size_t>(columns), 0), low_ = high_, odd_ = high_;
  }

  void add(const float* row) {
    float *high = high_.data(), *low = low_.data(), *odd = odd_.data();
    for (int64_t j = 0; j < columns_; ++j) {
      const float value = row[j];
      high[j] = value > high[j] ? value : high[j];
      low[j] = value < low[j] ? value : low[j];
      odd[j] += value - value;  // NaN once a value was not finite, else 0
    }
  }

  void end_cells(int64_t cell_row) {
    for (int64_t cell = 0; cell < width_; ++cell) {
      const int64_t from = cell * columns_ / width_, to = (cell + 1) * columns_ / width_;
      float high = 0, low = 0, odd = 0;
      for (int64_t j = from; j < to; ++j) {
        const auto at = static_cast<size_t>(j);
        high = std::max(high, high_[at]), low = std::min(low, low_[at]), odd += odd_[at];
      }
      cells_[static_cast<size_t>(cell_row * width_ + cell)] = std::isnan(odd) ? NAN : high > -low ? high : low;
    }
    std::fill(high_.begin(), high_.end(), 0.0f), std::fill(low_.begin(), low_.end(), 0.0f);
    std::fill(odd_.begin(), odd_.end(), 0.0f);
  }

  float limit() const {
    float most = 0;
    for (const float cell : cells_)
      if (std::isfinite(cell)) most = std::max(most, std::fabs(cell));
    return most;
  }

  Json json(float limit) const {
    std::vector<uint8_t> bytes(cells_.size());
    for (size_t i = 0; i < cells_.size(); ++i) {
      const double share = limit > 0 ? std::clamp(cells_[i] / limit, -1.0f, 1.0f) : 0;
      bytes[i] =
          std::isfinite(cells_[i]) ? static_cast<uint8_t>(static_cast<int8_t>(std::lround(127 * share))) : kNotFinite;
    }
    return {{"limit", json_number(limit)}, {"cells", base64(bytes)}};
  }

  int64_t height() const { return height_; }
  int64_t width() const { return width_; }

 private:
  int64_t columns_, height_, width_;
  std::vector<float> cells_, high_, low_, odd_;
};

struct Range {
  float low = INFINITY, high = -INFINITY;
  void add(const float* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      if (std::isfinite(values[i])) low = std::min(low, values[i]), high = std::max(high, values[i]);
  }
};

// Whole rows, evenly spread, so that at most kHistogramElements are looked at.
std::vector<float> sample_of(const Tensor& tensor, int64_t rows, int64_t columns) {
  const int64_t wanted = std::clamp<int64_t>(kHistogramElements / std::max<int64_t>(1, columns), 1, rows);
  const int64_t width = std::min(columns, kHistogramElements);
  FloatReader reader(tensor);
  std::vector<float> out(static_cast<size_t>(wanted * width));
  for (int64_t i = 0; i < wanted; ++i) reader.read(i * rows / wanted * columns, width, out.data() + i * width);
  return out;
}

std::vector<uint32_t> counts_of(const std::vector<float>& sample, const Range& range) {
  std::vector<uint32_t> bins(kBins);
  const double width = static_cast<double>(range.high) - range.low;
  for (const float value : sample) {
    if (!std::isfinite(value)) continue;
    const double at = width > 0 ? (static_cast<double>(value) - range.low) / width * kBins : kBins / 2;
    ++bins[std::min(static_cast<size_t>(std::max(0.0, at)), kBins - 1)];
  }
  return bins;
}

Json histogram(const Tensor& reference, const std::optional<Tensor>& candidate, int64_t rows, int64_t columns) {
  const auto shape_of = [&](const Tensor& tensor) {
    const int64_t last = tensor.rank() ? tensor.dim(-1) : 1;
    return tensor.shape() == reference.shape() ? std::pair(rows, columns) : std::pair(tensor.numel() / last, last);
  };
  const std::vector<float> a = sample_of(reference, rows, columns);
  std::vector<float> b;
  if (candidate) {
    const auto [their_rows, their_columns] = shape_of(*candidate);
    b = sample_of(*candidate, their_rows, their_columns);
  }
  Range range;
  range.add(a.data(), static_cast<int64_t>(a.size())), range.add(b.data(), static_cast<int64_t>(b.size()));
  if (!(range.low <= range.high)) return Json();  // nothing finite
  Json out = {{"low", json_number(range.low)},
              {"high", json_number(range.high)},
              {"sampled", static_cast<int64_t>(a.size()) < reference.numel()},
              {"reference", counts_of(a, range)}};
  if (candidate) out["candidate"] = counts_of(b, range);
  return out;
}

// Walks rows of `columns` floats of one or two tensors and hands them out with the row of cells they belong to.
template <typename Each, typename End>
void walk_rows(const Tensor& first, const Tensor* second, int64_t rows, int64_t columns, int64_t height, Each&& each,
               End&& end) {
  FloatReader a(first);
  std::optional<FloatReader> b;
  if (second) b.emplace(*second);
  const int64_t at_once = std::max<int64_t>(1, (1 << 15) / columns);
  std::vector<float> x(static_cast<size_t>(at_once * columns)), y(second ? x.size() : 0);
  int64_t cell_row = 0;
  for (int64_t i = 0; i < rows; i += at_once) {
    const int64_t count = std::min(at_once, rows - i);
    a.read(i * columns, count * columns, x.data());
    if (b) b->read(i * columns, count * columns, y.data());
    for (int64_t k = 0; k < count; ++k) {
      const int64_t here = (i + k) * height / rows;
      if (here != cell_row) end(cell_row);
      cell_row = here;
      each(x.data() + k * columns, b ? y.data() + k * columns : nullptr);
    }
  }
  end(cell_row);
}

Json lone_map(const Tensor& tensor, int64_t side) {
  const int64_t columns = tensor.rank() ? tensor.dim(-1) : 1, rows = tensor.numel() / columns;
  Extremes cells(rows, columns, side);
  walk_rows(
      tensor, nullptr, rows, columns, cells.height(), [&](const float* x, const float*) { cells.add(x); },
      [&](int64_t row) { cells.end_cells(row); });
  Json out = cells.json(cells.limit());
  out.update({{"height", cells.height()}, {"width", cells.width()}, {"rows", rows}, {"columns", columns}});
  return out;
}

}  // namespace

int64_t map_side(int64_t maps) {
  const double cells = static_cast<double>(kMapBytes) * 3 / 4 / static_cast<double>(std::max<int64_t>(1, maps));
  return std::clamp(static_cast<int64_t>(std::sqrt(cells)), kSmallestMap, kLargestMap);
}

Json tensor_maps(const Tensor& reference, const std::optional<Tensor>& candidate, int64_t side) {
  if (reference.numel() == 0 || (candidate && candidate->numel() == 0)) return Json();
  const int64_t columns = reference.rank() ? reference.dim(-1) : 1, rows = reference.numel() / columns;
  Json out;
  if (candidate && candidate->shape() == reference.shape()) {
    Extremes r(rows, columns, side), c = r, d = r;
    std::vector<float> difference(static_cast<size_t>(columns));
    walk_rows(
        reference, &*candidate, rows, columns, r.height(),
        [&](const float* x, const float* y) {
          for (int64_t j = 0; j < columns; ++j)  // two infinities or two NaNs are the same
            difference[static_cast<size_t>(j)] = x[j] == y[j] || (x[j] != x[j] && y[j] != y[j]) ? 0 : y[j] - x[j];
          r.add(x), c.add(y), d.add(difference.data());
        },
        [&](int64_t row) { r.end_cells(row), c.end_cells(row), d.end_cells(row); });
    const Json size = {{"height", r.height()}, {"width", r.width()}, {"rows", rows}, {"columns", columns}};
    const float limit = r.limit() > 0 ? r.limit() : c.limit();  // one scale for both, so that they can be told apart
    out = {{"reference", r.json(limit)}, {"candidate", c.json(limit)}, {"difference", d.json(d.limit())}};
    for (auto& [name, map] : out.items()) map.update(size);
  } else {
    out["reference"] = lone_map(reference, side);
    if (candidate) out["candidate"] = lone_map(*candidate, side);
  }
  out["histogram"] = histogram(reference, candidate, rows, columns);
  return out;
}

}  // namespace lockstep
