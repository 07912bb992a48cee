#include "backend/cpu/convolution.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/panel.h"
#include "backend/cpu/panel_pack.h"
#include "backend/cpu/row_kernels.h"
#include "backend/cpu/threads.h"
#include "tensor/rehearsal.h"
#include "tensor/storage.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kGatheredBytes = 256 << 10;  // rows of one work item, gathered: half a core's second cache
constexpr int64_t kMostRows = 96;

struct FilterPanels {
  std::shared_ptr<std::byte> data;  // [O / 64][K][64], K = kh kw I with the channels innermost
  int64_t inner = 0;
};

int64_t even(int64_t k, DType dtype) {
  return dtype == DType::kBF16 ? k + k % 2 : k;
}

FilterPanels pack_filter(const Tensor& filter) {
  const DType dtype = filter.dtype();
  const int64_t outputs = filter.dim(0), k = filter.dim(1) * filter.dim(2) * filter.dim(3);
  const int64_t item = static_cast<int64_t>(dtype_bytes(dtype));
  LinearWeight weight;
  weight.weight = filter.permute({0, 2, 3, 1}).contiguous().reshape({outputs, k});  // [O, kh, kw, I] -> [O, K]
  FilterPanels panels{nullptr, even(k, dtype)};
  const int64_t columns = (outputs + kPanel - 1) / kPanel * kPanel;
  panels.data = allocate_bytes(static_cast<size_t>(columns * panels.inner * item));
  for (int64_t column = 0; column < columns && !rehearsing(); column += kPanel)
    pack_panel(weight, column, 0, k, dtype, panels.data.get() + column * panels.inner * item);
  return panels;
}

FilterPanels panels_of(const PackedFilter& filter) {
  const std::lock_guard lock(filter.mutex);
  if (!filter.packed) filter.packed = std::make_shared<FilterPanels>(pack_filter(filter.weight));
  return *static_cast<const FilterPanels*>(filter.packed.get());
}

// What one output pixel sees, in the order of the panels.
struct Gather {
  const std::byte* x;
  int64_t height, width, pixel_bytes, out_height, out_width;
  int64_t filter_height, filter_width, inner_bytes;
  int stride, pad_top, pad_left;

  void row(int64_t pixel, std::byte* to) const {
    const int64_t ox = pixel % out_width, oy = pixel / out_width % out_height, image = pixel / (out_width * out_height);
    const std::byte* end = to + inner_bytes;
    const int64_t first = ox * stride - pad_left;
    for (int64_t ky = 0; ky < filter_height; ++ky) {
      const int64_t y = oy * stride + ky - pad_top;
      const int64_t whole = filter_width * pixel_bytes;
      if (y < 0 || y >= height) {
        std::memset(to, 0, static_cast<size_t>(whole));
      } else {
        const int64_t left = std::clamp<int64_t>(-first, 0, filter_width);
        const int64_t right = std::clamp<int64_t>(width - first, left, filter_width);
        std::memset(to, 0, static_cast<size_t>(left * pixel_bytes));
        std::memcpy(to + left * pixel_bytes, x + ((image * height + y) * width + first + left) * pixel_bytes,
                    static_cast<size_t>((right - left) * pixel_bytes));
        std::memset(to + right * pixel_bytes, 0, static_cast<size_t>((filter_width - right) * pixel_bytes));
      }
      to += whole;
    }
    std::memset(to, 0, static_cast<size_t>(end - to));
  }
};

}  // namespace

void convolve_by_panels(const Conv2dArgs& args, const PackedFilter& filter, int threads, Level level) {
  const Tensor &x = args.x, &w = filter.weight;  // [B, H, W, I], [O, I, kh, kw]
  const DType dtype = w.dtype();
  const int64_t item = static_cast<int64_t>(dtype_bytes(dtype)), outputs = w.dim(0);
  const FilterPanels panels = panels_of(filter);
  const MultiplyPanel multiply = multiply_for(dtype, level);
  const Gather gather{.x = x.strided_data(),
                      .height = x.dim(1),
                      .width = x.dim(2),
                      .pixel_bytes = x.dim(3) * item,
                      .out_height = args.out.dim(1),
                      .out_width = args.out.dim(2),
                      .filter_height = w.dim(2),
                      .filter_width = w.dim(3),
                      .inner_bytes = panels.inner * item,
                      .stride = args.stride,
                      .pad_top = args.pad_top,
                      .pad_left = args.pad_left};
  const Rows out_rows(args.out, "conv2d");  // [B Ho Wo, O]
  const Rows residual_rows = args.residual ? Rows(*args.residual, "conv2d") : Rows();
  const EpilogueRows epilogue = {.dtype = dtype,
                                 .y = nullptr,
                                 .y_stride = kPanel,
                                 .bias = filter.bias.defined() ? filter.bias.data<float>() : nullptr,
                                 .activation = Activation::kNone,
                                 .multiply = nullptr,
                                 .residual = args.residual ? &residual_rows : nullptr,
                                 .gate = nullptr,
                                 .rows_per_batch = 1,
                                 .out = out_rows};
  const int64_t rows = out_rows.count();
  const int64_t each =
      std::clamp<int64_t>(kGatheredBytes / std::max<int64_t>(1, gather.inner_bytes) / 12 * 12, 12, kMostRows);
  const int64_t items = (rows + each - 1) / each;
  const int64_t gathered_bytes = (each * gather.inner_bytes + 63) / 64 * 64, sums_bytes = each * kPanel * 4;
  const std::shared_ptr<std::byte> scratch =
      allocate_bytes(static_cast<size_t>(threads * (gathered_bytes + sums_bytes)));
  const int64_t cost = each * outputs * panels.inner / kProductsPerOperation;
  parallel_items(threads, items, cost, [&](int64_t part, int worker) {
    std::byte* gathered = scratch.get() + worker * (gathered_bytes + sums_bytes);
    float* sums = reinterpret_cast<float*>(gathered + gathered_bytes);
    const int64_t begin = part * each, end = std::min(begin + each, rows);
    for (int64_t row = begin; row < end; ++row) gather.row(row, gathered + (row - begin) * gather.inner_bytes);
    for (int64_t column = 0; column < outputs; column += kPanel) {
      const int64_t last = std::min(column + kPanel, outputs);
      multiply({.a = gathered,
                .a_stride = panels.inner,
                .panel = panels.data.get() + column * panels.inner * item,
                .c = sums,
                .c_stride = kPanel,
                .rows = end - begin,
                .k = panels.inner,
                .columns = last - column,
                .accumulate = false});
      EpilogueRows task = epilogue;
      task.y = sums;
      epilogue_block(task, begin, end, column, last);
    }
  });
}

}  // namespace lockstep::cpu
