#include "io/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/thread.h"
#include "io/resize_kernel.h"
#include "tensor/rehearsal.h"
#include "tensor/tile_transpose.h"

namespace lockstep {
namespace {

// ---- weights

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) {
  return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

double bicubic(double x) {  // a = -0.5 in both libraries, where they smooth
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0;
}

// What one axis of the result is made of: value i is the sum over taps t of weight * source[first + t].
struct AxisPlan {
  struct Output {
    int64_t first, count;
  };
  std::vector<Output> outputs;
  std::vector<int32_t> weights;  // `stride` an output
  int64_t stride = 0;
  int bits = 0;  // of the fixed point
};

AxisPlan plan_axis(int64_t from, int64_t to, Resampling resampling) {
  const bool cubic = resampling != Resampling::kPillowLanczos, torch = resampling == Resampling::kTorchvisionBicubic;
  const double scale = static_cast<double>(from) / static_cast<double>(to), stretch = std::max(scale, 1.0);
  const double support = (cubic ? 2.0 : 3.0) * stretch, inverse = 1.0 / stretch;
  AxisPlan plan;
  plan.stride = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  std::vector<double> exact(static_cast<size_t>(to * plan.stride));
  double largest = 0;
  for (int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t count = std::min(static_cast<int64_t>(center + support + 0.5), from) - first;
    double* row = exact.data() + i * plan.stride;
    double total = 0;
    for (int64_t t = 0; t < count; ++t) {
      const double x = (static_cast<double>(t + first) - center + 0.5) * inverse;
      row[t] = cubic ? bicubic(x) : lanczos(x);
      total += row[t];
    }
    for (int64_t t = 0; t < count && total != 0; ++t) {
      row[t] /= total;
      largest = std::max(largest, row[t]);
    }
    plan.outputs.push_back({first, count});
  }
  // Pillow keeps 22 bits; torch as many as let the largest weight fit 16 bits.
  constexpr int kPillowBits = 32 - 8 - 2;
  plan.bits = kPillowBits;
  if (torch)
    for (plan.bits = 0; plan.bits < kPillowBits; ++plan.bits)
      if (static_cast<int>(0.5 + largest * (1 << (plan.bits + 1))) >= 1 << 15) break;
  for (const double weight : exact) {
    const double scaled = weight * (1 << plan.bits);
    plan.weights.push_back(static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5));
  }
  return plan;
}

// Value `output` of an axis along which neighbours are `stride` bytes apart and `length` bytes wide.
void add_output(const AxisPlan& plan, size_t output, const uint8_t* from, size_t stride, size_t length, uint8_t* to) {
  const AxisPlan::Output& taps = plan.outputs[output];
  add_weighted_rows({.from = from + static_cast<size_t>(taps.first) * stride,
                     .stride = stride,
                     .length = length,
                     .taps = static_cast<size_t>(taps.count),
                     .weights = plan.weights.data() + output * static_cast<size_t>(plan.stride),
                     .bits = plan.bits,
                     .to = to});
}

// ---- passes

constexpr size_t kBlock = 16;  // rows that are resized along their columns together, standing side by side

// Up to kBlock rows: [rows, from_bytes] → [rows, to_bytes]. Turned, a pixel's bytes of all rows lie together, and
// columns are added as rows are.
class ColumnPass {
 public:
  ColumnPass(const AxisPlan& plan, size_t from_pixels, size_t channels)
      : plan_(plan),
        channels_(channels),
        from_bytes_(from_pixels * channels),
        to_bytes_(plan.outputs.size() * channels),
        rows_(padded(std::max(from_bytes_, to_bytes_)) * kBlock),
        turned_(padded(from_bytes_) * kBlock),
        sums_(padded(to_bytes_) * kBlock) {}

  void run(const uint8_t* from, size_t rows, uint8_t* to) {
    turn_block(from, rows, from_bytes_, turned_.data());
    for (size_t x = 0; x < plan_.outputs.size(); ++x)
      add_output(plan_, x, turned_.data(), channels_ * kBlock, channels_ * kBlock,
                 sums_.data() + x * channels_ * kBlock);
    const size_t stride = padded(to_bytes_);
    for (size_t column = 0; column < stride; column += kBlock)
      transpose_tile<uint8_t, kBlock>(sums_.data() + column * kBlock, kBlock, rows_.data() + column, stride);
    for (size_t row = 0; row < rows; ++row) std::memcpy(to + row * to_bytes_, rows_.data() + row * stride, to_bytes_);
  }

 private:
  static size_t padded(size_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }
  void turn_block(const uint8_t* from, size_t rows, size_t bytes, uint8_t* to) {
    const size_t stride = padded(bytes);
    for (size_t row = 0; row < rows; ++row) std::memcpy(rows_.data() + row * stride, from + row * bytes, bytes);
    for (size_t column = 0; column < stride; column += kBlock)
      transpose_tile<uint8_t, kBlock>(rows_.data() + column, stride, to + column * kBlock, kBlock);
  }

  const AxisPlan& plan_;
  size_t channels_, from_bytes_, to_bytes_;
  std::vector<uint8_t> rows_, turned_, sums_;
};

// Calls work(begin, end) for shares of [0, count) on all cores when there is enough of it.
template <typename Work>
void share_rows(int64_t count, int64_t bytes, const Work& work) {
  constexpr int64_t kWorthAThread = 1 << 20;
  const int64_t most = std::min<int64_t>(
      {bytes / kWorthAThread, count, 16, static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()))});
  std::vector<JoinedThread> helpers;
  for (int64_t i = 1; i < most; ++i)
    helpers.emplace_back(
        start_thread("resize", [&work, i, most, count] { work(count * i / most, count * (i + 1) / most); }));
  work(0, most > 1 ? count / most : count);
}

Tensor resize_columns(const Tensor& pixels, int64_t width, Resampling resampling) {
  const int64_t rows = pixels.dim(0), from_width = pixels.dim(1), channels = pixels.dim(2);
  const AxisPlan plan = plan_axis(from_width, width, resampling);
  Tensor out = Tensor::empty(DType::kU8, {rows, width, channels});
  const uint8_t* from = pixels.data<uint8_t>();
  uint8_t* to = out.mutable_data<uint8_t>();
  share_rows(rows, pixels.numel(), [&](int64_t begin, int64_t end) {
    ColumnPass pass(plan, static_cast<size_t>(from_width), static_cast<size_t>(channels));
    for (int64_t y = begin; y < end; y += kBlock)
      pass.run(from + y * from_width * channels, static_cast<size_t>(std::min<int64_t>(kBlock, end - y)),
               to + y * width * channels);
  });
  return out;
}

Tensor resize_rows(const Tensor& pixels, int64_t height, Resampling resampling) {
  const AxisPlan plan = plan_axis(pixels.dim(0), height, resampling);
  const auto row_bytes = static_cast<size_t>(pixels.dim(1) * pixels.dim(2));
  Tensor out = Tensor::empty(DType::kU8, {height, pixels.dim(1), pixels.dim(2)});
  const uint8_t* from = pixels.data<uint8_t>();
  uint8_t* to = out.mutable_data<uint8_t>();
  share_rows(height, pixels.numel(), [&](int64_t begin, int64_t end) {
    for (int64_t y = begin; y < end; ++y)
      add_output(plan, static_cast<size_t>(y), from, row_bytes, row_bytes, to + static_cast<size_t>(y) * row_bytes);
  });
  return out;
}

// ---- alpha

Tensor premultiplied(const Tensor& rgba) {
  Tensor out = Tensor::empty(DType::kU8, rgba.shape());
  const uint8_t* from = rgba.data<uint8_t>();
  uint8_t* to = out.mutable_data<uint8_t>();
  for (int64_t i = 0; i < rgba.numel(); i += 4) {
    for (int64_t c = 0; c < 3; ++c) {
      const uint32_t product = uint32_t{from[i + c]} * from[i + 3] + 128;
      to[i + c] = static_cast<uint8_t>(((product >> 8) + product) >> 8);
    }
    to[i + 3] = from[i + 3];
  }
  return out;
}

void divide_by_alpha(Tensor& rgba) {
  uint8_t* pixel = rgba.mutable_data<uint8_t>();
  for (int64_t i = 0; i < rgba.numel(); i += 4) {
    const uint32_t alpha = pixel[i + 3];
    if (alpha == 0 || alpha == 255) continue;
    for (int64_t c = 0; c < 3; ++c)
      pixel[i + c] = static_cast<uint8_t>(std::min<uint32_t>(255 * uint32_t{pixel[i + c]} / alpha, 255));
  }
}

}  // namespace

Tensor resize_picture(const Tensor& pixels, int64_t height, int64_t width, Resampling resampling) {
  if (pixels.rank() != 3 || pixels.dtype() != DType::kU8 || pixels.dim(2) < 1 || pixels.dim(2) > 4 ||
      pixels.numel() == 0 || height < 1 || width < 1)
    fail(Code::kBadInput, "resize", "not a picture that can be resized",
         {.expected = "u8 [height, width, 1 to 4]", .got = to_string(pixels.shape())});
  Tensor picture = pixels.contiguous();
  if (rehearsing()) return Tensor::empty(DType::kU8, {height, width, pixels.dim(2)});
  if (picture.dim(0) == height && picture.dim(1) == width) return picture;
  const bool alpha = picture.dim(2) == 4 && resampling != Resampling::kTorchvisionBicubic;
  if (alpha) picture = premultiplied(picture);
  // Values are rounded between the passes, so their order shows. Pillow 13 begins with the rows where that takes away
  // more than twice as many lines; before, and in torch, columns always came first.
  const bool rows_first = resampling != Resampling::kTorchvisionBicubic && height < picture.dim(0) &&
                          picture.dim(0) - height > 2 * (picture.dim(1) - width);
  for (const bool rows : {rows_first, !rows_first}) {
    if (rows && picture.dim(0) != height) picture = resize_rows(picture, height, resampling);
    if (!rows && picture.dim(1) != width) picture = resize_columns(picture, width, resampling);
  }
  if (alpha) divide_by_alpha(picture);
  return picture;
}

}  // namespace lockstep
