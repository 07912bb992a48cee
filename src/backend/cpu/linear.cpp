#include "backend/cpu/linear.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "backend/check_weight.h"
#include "backend/cpu/panel.h"
#include "backend/cpu/panel_pack.h"
#include "backend/cpu/row_kernels.h"
#include "backend/cpu/threads.h"
#include "backend/quantize.h"
#include "base/error.h"
#include "tensor/rehearsal.h"
#include "tensor/storage.h"

namespace lockstep::cpu {
namespace {

// A weight of at most this many elements is packed into our own panels: its product is over in the time oneDNN needs to
// make a primitive for each new number of rows.
constexpr int64_t kSmallWeight = 1 << 19;
constexpr int64_t kWholePanelBytes = 512 << 10;  // a panel up to this size, half a core's second cache, is taken whole;
constexpr int64_t kPanelBlockBytes = 256 << 10;  // a larger one in blocks of this size
constexpr int64_t kRowsAtOnce = 96;              // rows between product and epilogue
constexpr int64_t kRowsPerItem = 1152;           // rows whose sums wait for the next block

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// What `prepared` points to.
struct PackedLinear {
  DType dtype = DType::kF32;
  std::shared_ptr<const PackedMatrix> matrix;  // oneDNN's, or
  std::shared_ptr<std::byte> panels;           // ours: [N / 64][K][64]
  Tensor bias;                                 // f32
};

constexpr WeightTypes kRowTypes{is_row_dtype, "f32, bf16 or f16"};

// x [M, K] times panels, then the epilogue; whole work items are independent, and each sums K in the same order
// whatever the thread count.
class PanelLinear {
 public:
  PanelLinear(const LinearWeight& weight, const PackedLinear* packed, DType dtype, Level level)
      : weight_(weight), packed_(packed), dtype_(dtype), item_(dtype == DType::kBF16 ? 2 : 4) {
    multiply_ = multiply_for(dtype, level);
    inner_ = round_up(weight.inputs(), dtype == DType::kBF16 ? 2 : 1);
    const int64_t whole = inner_ * kPanel * item_;
    block_ =
        whole <= kWholePanelBytes ? inner_ : kPanelBlockBytes / (kPanel * item_);  // a multiple of every group size
  }

  int64_t inner() const { return inner_; }

  void run(const void* x, int64_t x_stride, int64_t rows, const EpilogueRows& epilogue, int threads) const {
    const int64_t columns = weight_.outputs(), panels = (columns + kPanel - 1) / kPanel;
    const bool single = block_ == inner_;
    int64_t parts = single ? 1 : (rows + kRowsPerItem - 1) / kRowsPerItem;
    if (packed_ || panels < threads)  // more rows apart cost nothing when nothing is unpacked
      while (parts * panels < 4 * threads && rows / (parts + 1) >= 12) ++parts;
    const int64_t each = round_up((rows + parts - 1) / parts, 12);
    parts = (rows + each - 1) / each;
    const int64_t sums_rows = single ? std::min(each, kRowsAtOnce) : each;
    const int64_t sums_bytes = sums_rows * kPanel * 4, panel_bytes = packed_ ? 0 : block_ * kPanel * item_;
    const std::shared_ptr<std::byte> scratch =
        allocate_bytes(static_cast<size_t>(threads * (sums_bytes + panel_bytes)));
    parallel_items(
        threads, panels * parts, each * kPanel * inner_ / kProductsPerOperation, [&](int64_t item, int worker) {
          std::byte* mine = scratch.get() + worker * (sums_bytes + panel_bytes);
          float* sums = reinterpret_cast<float*>(mine + panel_bytes);
          const int64_t column = item / parts * kPanel, begin = item % parts * each, end = std::min(begin + each, rows);
          const int64_t last = std::min(column + kPanel, columns);
          const auto finish = [&](int64_t first_row, int64_t last_row, const float* y) {
            EpilogueRows task = epilogue;
            task.y = y;
            task.y_stride = kPanel;
            epilogue_block(task, first_row, last_row, column, last);
          };
          for (int64_t k = 0; k < inner_ || k == 0; k += block_) {
            const int64_t count = std::min(block_, inner_ - k);
            const std::byte* panel = mine;
            if (packed_)
              panel = packed_->panels.get() + (column * inner_ + k * kPanel) * item_;
            else
              pack_panel(weight_, column, k, std::min(count, weight_.inputs() - k), dtype_, mine);
            const int64_t stride = single ? kRowsAtOnce : end - begin;
            for (int64_t row = begin; row < end; row += stride) {
              const int64_t stop = std::min(row + stride, end);
              multiply_({.a = static_cast<const std::byte*>(x) + (row * x_stride + k) * item_,
                         .a_stride = x_stride,
                         .panel = panel,
                         .c = sums,
                         .c_stride = kPanel,
                         .rows = stop - row,
                         .k = count,
                         .columns = last - column,
                         .accumulate = k > 0});
              if (single) finish(row, stop, sums);
            }
            if (inner_ == 0) break;
          }
          if (!single) finish(begin, end, sums);
        });
  }

 private:
  const LinearWeight& weight_;
  const PackedLinear* packed_;
  DType dtype_;
  int64_t item_, inner_ = 0, block_ = 0;
  MultiplyPanel multiply_ = nullptr;
};

std::shared_ptr<std::byte> pack_all(const LinearWeight& weight, DType dtype) {
  const int64_t item = dtype == DType::kBF16 ? 2 : 4;
  const int64_t inner = round_up(weight.inputs(), dtype == DType::kBF16 ? 2 : 1);
  const int64_t columns = round_up(weight.outputs(), kPanel);
  std::shared_ptr<std::byte> panels = allocate_bytes(static_cast<size_t>(columns * inner * item));
  for (int64_t column = 0; column < columns && !rehearsing(); column += kPanel)
    pack_panel(weight, column, 0, weight.inputs(), dtype, panels.get() + column * inner * item);
  return panels;
}

// The rows of x in the dtype of the computation, one stride apart, `width` elements readable in each.
struct Operand {
  Tensor held;
  const void* data;
  int64_t stride;
};

Operand operand(const Tensor& x, const Rows& rows, DType dtype, int64_t width, int threads) {
  const int64_t item = static_cast<int64_t>(dtype_bytes(dtype));
  if (x.dtype() == dtype && rows.uniform() && width == rows.columns() && rows.stride_bytes() > 0)
    return {x, x.strided_data(), rows.stride_bytes() / item};
  Tensor packed = Tensor::empty(dtype, {rows.count(), width});
  parallel_chunks(threads, rows.count(), width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::byte* to = packed.mutable_strided_data() + row * width * item;
      convert_run(rows.bytes(row), x.dtype(), to, dtype, rows.columns());
      std::memset(to + rows.columns() * item, 0, static_cast<size_t>((width - rows.columns()) * item));
    }
  });
  return {packed, packed.strided_data(), width};
}

}  // namespace

DType Linear::compute_dtype(DType activations) const {
  return activations == DType::kBF16 && multiplies_bf16(level_) ? DType::kBF16 : DType::kF32;
}

bool Linear::prepare(LinearWeight& weight, DType activations) {
  check_weight(weight, kRowTypes);
  refuse_fp8(weight, "the CPU");
  auto packed = std::make_shared<PackedLinear>();
  packed->dtype = compute_dtype(activations);
  if (weight.bias.defined()) packed->bias = weight.bias.to(DType::kF32).contiguous();
  const int64_t elements = weight.outputs() * weight.inputs();
  if (weight.bits == 0 && elements > 0) {
    const bool in_place = dtype_bytes(packed->dtype) > dtype_bytes(weight.weight.dtype());
    // Our tiles are 1.7 to 2.1 times as fast as those of oneDNN 2.6.3 (two cores of a Xeon, 1088 rows and more).
    const bool own_tiles = level_ == Level::kAmx && packed->dtype == DType::kBF16;
    if (elements <= kSmallWeight || own_tiles || (!OneDnn::is_there() && !in_place))
      packed->panels = pack_all(weight, packed->dtype);
    else if (!in_place)  // a wider copy of a large weight is not made: its panels are widened as they are used
      packed->matrix = onednn_.pack(weight.weight, packed->dtype);
  }
  weight.prepared = packed;
  return packed->panels || packed->matrix;
}

void Linear::run(const LinearArgs& args) {
  const LinearWeight& weight = args.weight;
  check_weight(weight, kRowTypes);
  if (args.x.rank() < 1 || args.x.dim(-1) != weight.inputs())
    fail(Code::kBadInput, "linear", "the last axis of x is not the weight's input width",
         {.expected = std::to_string(weight.inputs()), .got = to_string(args.x.shape())});
  const Rows x_rows(args.x, "linear"), out_rows(args.out, "linear");
  if (out_rows.count() != x_rows.count() || out_rows.columns() != weight.outputs())
    fail(Code::kBadInput, "linear", "shape of the output",
         {.expected = std::to_string(x_rows.count()) + " rows of " + std::to_string(weight.outputs()),
          .got = to_string(args.out.shape())});
  const int64_t rows = x_rows.count(), columns = weight.outputs();
  if (rows == 0 || columns == 0) return;
  const PackedLinear* packed = static_cast<const PackedLinear*>(weight.prepared.get());
  const DType dtype = compute_dtype(args.x.dtype());
  if (packed && packed->dtype != dtype) packed = nullptr;  // prepared for other activations: slower, not wrong

  Tensor bias = packed ? packed->bias : Tensor();
  if (!packed && weight.bias.defined()) bias = weight.bias.to(DType::kF32).contiguous();
  Tensor gate;
  if (args.gate) gate = args.gate->to(DType::kF32).contiguous();
  const DType out_dtype = args.out.dtype();
  // Operands of the epilogue are read in the dtype of the output.
  Tensor multiply, residual;
  if (args.multiply) multiply = args.multiply->to(out_dtype);
  if (args.residual) residual = args.residual->to(out_dtype);
  const Rows multiply_rows = args.multiply ? Rows(multiply, "linear") : Rows();
  const Rows residual_rows = args.residual ? Rows(residual, "linear") : Rows();
  EpilogueRows epilogue = {.dtype = out_dtype,
                           .y = nullptr,
                           .y_stride = columns,
                           .bias = bias.defined() ? bias.data<float>() : nullptr,
                           .activation = args.activation,
                           .multiply = args.multiply ? &multiply_rows : nullptr,
                           .residual = args.residual ? &residual_rows : nullptr,
                           .gate = args.gate ? gate.data<float>() : nullptr,
                           .rows_per_batch = args.gate ? rows / args.gate->dim(0) : 1,
                           .out = out_rows};

  if (!packed || !packed->matrix) {
    const PanelLinear product(weight, packed && packed->panels ? packed : nullptr, dtype, level_);
    const Operand x = operand(args.x, x_rows, dtype, product.inner(), threads_);
    return product.run(x.data, x.stride, rows, epilogue, threads_);
  }

  const Operand x = operand(args.x, x_rows, dtype, x_rows.columns(), threads_);
  const bool plain = args.activation == Activation::kNone && !args.multiply && !args.residual;
  const bool direct = plain && out_rows.uniform() && (out_dtype == DType::kF32 || out_dtype == dtype);
  Tensor sums;
  MatrixProduct product = {.x = x.data,
                           .rows = rows,
                           .x_stride = x.stride,
                           .weight = *packed->matrix,
                           .bias = epilogue.bias,
                           .out = args.out.mutable_strided_data(),
                           .out_dtype = out_dtype,
                           .out_stride = out_rows.stride_bytes() / static_cast<int64_t>(dtype_bytes(out_dtype))};
  if (!direct) {
    sums = Tensor::empty(DType::kF32, {rows, columns});
    product.out = sums.mutable_strided_data();
    product.out_dtype = DType::kF32;
    product.out_stride = columns;
  }
  onednn_.multiply(product);
  if (direct) return;
  epilogue.bias = nullptr;  // added by the product
  parallel_chunks(threads_, rows, columns * 4, [&](int64_t begin, int64_t end) {
    EpilogueRows task = epilogue;
    task.y = sums.data<float>() + begin * columns;
    epilogue_block(task, begin, end, 0, columns);
  });
}

}  // namespace lockstep::cpu
