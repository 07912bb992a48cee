#include "backend/cpu/cpu_backend.h"

#include <omp.h>

#include <initializer_list>
#include <string>

#include "backend/check_storage.h"
#include "backend/cpu/attention.h"
#include "backend/cpu/convolution.h"
#include "backend/cpu/copying.h"
#include "backend/cpu/features.h"
#include "backend/cpu/head_rows_bf16.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/row_kernels.h"
#include "backend/cpu/threads.h"
#include "backend/sampling.h"
#include "base/error.h"

namespace lockstep {
namespace {

using namespace cpu;

const float* floats(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<float>() : nullptr;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, Level level)
      : threads_(threads), level_(level), onednn_(threads), linear_(onednn_, threads, level) {}

  std::string description() const override {
    return "cpu, " + std::string(level_title(level_)) + ", " + std::to_string(threads_) +
           (threads_ == 1 ? " thread" : " threads");
  }

  bool prepare(LinearWeight& weight, DType activations) override {
    check_storage("prepare", {&weight.weight});
    return linear_.prepare(weight, activations);
  }
  bool prepare(ConvWeight& weight, DType activations) override {
    check_storage("prepare", {&weight.weight});
    weight.prepared = packed_filter(weight, activations);
    return true;
  }

  void linear(const LinearArgs& args) override {
    check_storage("linear", {&args.x, &args.weight.weight, &args.out, args.multiply, args.residual, args.gate});
    if (is_row_dtype(args.x.dtype()) && is_row_dtype(args.out.dtype())) return linear_.run(args);
    with_floats({&args.x}, args.out, [&](const std::vector<Tensor>& in, Tensor& out) {
      const Tensor multiply = as_floats(args.multiply), residual = as_floats(args.residual);
      linear_.run({.x = in[0],
                   .weight = args.weight,
                   .out = out,
                   .activation = args.activation,
                   .multiply = args.multiply ? &multiply : nullptr,
                   .residual = args.residual ? &residual : nullptr,
                   .gate = args.gate});
    });
  }

  void attention(const AttentionArgs& args) override {
    check_storage("attention", {&args.q, &args.k, &args.v, &args.out, args.key_mask});
    const auto ready = [](const Tensor& t) {
      return is_row_dtype(t.dtype()) && (t.dim(-1) <= 1 || t.strides().back() == 1);
    };
    if (ready(args.q) && ready(args.k) && ready(args.v) && ready(args.out))
      return cpu::attention(args, threads_, level_);
    with_floats({&args.q, &args.k, &args.v}, args.out, [&](const std::vector<Tensor>& in, Tensor& out) {
      cpu::attention({.q = in[0],
                      .k = in[1],
                      .v = in[2],
                      .out = out,
                      .scale = args.scale,
                      .causal = args.causal,
                      .key_mask = args.key_mask,
                      .segment_ends = args.segment_ends},
                     threads_, level_);
    });
  }

  void rms_norm(const RmsNormArgs& args) override {
    check_storage("rms_norm", {&args.x, args.weight, &args.out});
    const Tensor weight = as_floats(args.weight);
    if (args.weight && args.x.dtype() != args.out.dtype()) {  // the rounding to x's dtype comes before the weight
      Tensor normal = Tensor::empty(args.x.dtype(), args.x.shape());
      rms_norm({.x = args.x, .out = normal, .eps = args.eps});
      return binary({.op = BinaryOp::kMultiply, .a = normal, .b = weight, .out = args.out});
    }
    by_rows({&args.x}, args.out, 4, [&](DType dtype, const std::vector<Tensor>& in, Tensor& out) {
      return [task = RmsNormRows{dtype, Rows(in[0], "rms_norm"), Rows(out, "rms_norm"), floats(weight), args.eps}](
                 int64_t begin, int64_t end) { rms_norm_rows(task, begin, end); };
    });
  }

  void layer_norm(const LayerNormArgs& args) override {
    check_storage("layer_norm", {&args.x, &args.out, args.weight, args.bias, args.scale, args.shift});
    const Tensor weight = as_floats(args.weight), bias = as_floats(args.bias);
    const Tensor shift = as_floats(args.shift);
    Tensor factor;
    if (args.scale) {
      const Tensor scale = as_floats(args.scale), one = Tensor::from<float>({1}, {1.0f});
      factor = Tensor::empty(DType::kF32, scale.shape());
      binary({.op = BinaryOp::kAdd, .a = scale, .b = one, .out = factor});
    }
    const int64_t batch = args.scale ? args.scale->dim(0) : args.shift ? args.shift->dim(0) : 1;
    by_rows({&args.x}, args.out, 6, [&](DType dtype, const std::vector<Tensor>& in, Tensor& out) {
      const Rows x(in[0], "layer_norm");
      return [task = LayerNormRows{dtype, x, Rows(out, "layer_norm"), std::max<int64_t>(1, x.count() / batch),
                                   floats(weight), floats(bias), floats(factor), floats(shift), args.eps}](
                 int64_t begin, int64_t end) { layer_norm_rows(task, begin, end); };
    });
  }

  void head_norm_rope(const HeadNormRopeArgs& args) override {
    check_storage("head_norm_rope", {&args.x, &args.out, args.weight, args.cos, args.sin});
    if (args.x.dim(3) > kWidestHead)
      fail(Code::kUnsupported, "head_norm_rope", "head width",
           {.expected = "at most " + std::to_string(kWidestHead), .got = std::to_string(args.x.dim(3))});
    if (args.style != RopeStyle::kNone && (!args.cos || !args.sin || args.x.dim(3) % 2 != 0))
      fail(Code::kBadInput, "head_norm_rope", "a rotation needs cos, sin and an even head width");
    const Tensor weight = as_floats(args.weight), cos = as_floats(args.cos), sin = as_floats(args.sin);
    by_rows({&args.x}, args.out, 6, [&](DType dtype, const std::vector<Tensor>& in, Tensor& out) {
      const HeadRows task{dtype,
                          Rows(in[0], "head_norm_rope"),
                          Rows(out, "head_norm_rope"),
                          args.x.dim(2),
                          args.x.dim(1),
                          floats(weight),
                          args.eps,
                          args.style,
                          floats(cos),
                          floats(sin)};
      const auto kernel = level_ >= Level::kAvx512Bf16 && head_rows_bf16_fits(task) ? head_rows_bf16_avx512 : head_rows;
      return [task, kernel](int64_t begin, int64_t end) { kernel(task, begin, end); };
    });
  }

  void add_gated(const AddGatedArgs& args) override {
    check_storage("add_gated", {&args.x, &args.gate, &args.y, &args.out});
    const Tensor gate = as_floats(&args.gate);
    by_rows({&args.x, &args.y}, args.out, 2, [&](DType dtype, const std::vector<Tensor>& in, Tensor& out) {
      const Rows x(in[0], "add_gated");
      return [task = AddGatedRows{dtype, x, Rows(in[1], "add_gated"), Rows(out, "add_gated"),
                                  std::max<int64_t>(1, x.count() / std::max<int64_t>(1, args.gate.dim(0))),
                                  floats(gate)}](int64_t begin, int64_t end) { add_gated_rows(task, begin, end); };
    });
  }

  void unary(const UnaryArgs& args) override {
    check_storage("unary", {&args.x, &args.out});
    by_rows({&args.x}, args.out, 16, [&](DType dtype, const std::vector<Tensor>& in, Tensor& out) {
      return [task = UnaryRows{args.op, dtype, Rows(in[0], "unary"), Rows(out, "unary")}](int64_t begin, int64_t end) {
        unary_rows(task, begin, end);
      };
    });
  }

  void binary(const BinaryArgs& args) override {
    check_storage("binary", {&args.a, &args.b, &args.out});
    by_rows({&args.a, &args.b}, args.out, 2, [&](DType dtype, const std::vector<Tensor>& in, Tensor& out) {
      const auto [a, a_scalar] = broadcast_rows(in[0], out.shape());
      const auto [b, b_scalar] = broadcast_rows(in[1], out.shape());
      return [task = BinaryRows{args.op, dtype, a, b, Rows(out, "binary"), a_scalar, b_scalar}](
                 int64_t begin, int64_t end) { binary_rows(task, begin, end); };
    });
  }

  void conv2d(const Conv2dArgs& args) override {
    check_storage("conv2d", {&args.x, &args.weight.weight, &args.out, args.residual});
    if (args.out.numel() == 0) return;
    const DType dtype = conv_dtype(args.x.dtype());
    auto filter = std::static_pointer_cast<const PackedFilter>(args.weight.prepared);
    if (!filter || filter->weight.dtype() != dtype) filter = packed_filter(args.weight, args.x.dtype());
    const Tensor x = converted(args.x, dtype, threads_).contiguous();
    Tensor residual;
    if (args.residual) residual = converted(*args.residual, dtype, threads_).contiguous();
    // oneDNN's convolution for SSE4.1 reads a fused residual at the wrong channels: add it ourselves there.
    const bool fuse = args.residual && (level_ >= Level::kAvx2 || !OneDnn::is_there());
    Tensor out =
        args.out.dtype() == dtype && args.out.is_contiguous() ? args.out : Tensor::empty(dtype, args.out.shape());
    const Conv2dArgs whole{.x = x,
                           .weight = args.weight,
                           .out = out,
                           .stride = args.stride,
                           .pad_top = args.pad_top,
                           .pad_left = args.pad_left,
                           .pad_bottom = args.pad_bottom,
                           .pad_right = args.pad_right,
                           .residual = fuse ? &residual : nullptr};
    if (OneDnn::is_there())
      onednn_.convolve(whole, *filter);
    else
      convolve_by_panels(whole, *filter, threads_, level_);
    if (args.residual && !fuse) binary({.op = BinaryOp::kAdd, .a = out, .b = residual, .out = out});
    if (out.strided_data() != args.out.strided_data()) cpu::copy({.from = out, .to = args.out}, threads_);
  }

  void channel_norm(const ChannelNormArgs& args) override {
    check_storage("channel_norm", {&args.x, &args.gamma, &args.out});
    const Tensor gamma = as_floats(&args.gamma);
    by_rows({&args.x}, args.out, args.silu ? 16 : 4, [&](DType dtype, const std::vector<Tensor>& in, Tensor& out) {
      return [task = ChannelNormRows{dtype, Rows(in[0], "channel_norm"), Rows(out, "channel_norm"), floats(gamma),
                                     args.silu}](int64_t begin, int64_t end) { channel_norm_rows(task, begin, end); };
    });
  }

  void gather(const GatherArgs& args) override {
    check_storage("gather", {&args.table, &args.ids, &args.out});
    cpu::gather(args, threads_);
  }

  void guidance(const GuidanceArgs& args) override {
    check_storage("guidance", {&args.cond, &args.uncond, &args.out});
    by_rows({&args.cond, &args.uncond}, args.out, 6, [&](DType dtype, const std::vector<Tensor>& in, Tensor& out) {
      return [task = GuidanceRows{dtype, Rows(in[0], "guidance"), Rows(in[1], "guidance"), Rows(out, "guidance"),
                                  args.scale, args.rescale}](int64_t begin, int64_t end) {
        guidance_rows(task, begin, end);
      };
    });
  }

  void euler_step(const EulerStepArgs& args) override { euler_step_on_host(args); }
  void denormalize(const DenormalizeArgs& args) override { denormalize_on_host(args); }
  void pixels(const PixelsArgs& args) override { pixels_on_host(args); }

  void copy(const CopyArgs& args) override {
    check_storage("copy", {&args.from, &args.to});
    cpu::copy(args, threads_);
  }

 private:
  static constexpr int64_t kWidestHead = 512;

  Tensor as_floats(const Tensor* tensor) const {
    return tensor ? converted(*tensor, DType::kF32, threads_).contiguous() : Tensor();
  }

  // Runs `function` on f32 copies and converts its result: for dtypes that no kernel knows.
  template <typename Function>
  void with_floats(std::initializer_list<const Tensor*> inputs, Tensor& out, Function&& function) {
    std::vector<Tensor> copies;
    for (const Tensor* input : inputs) copies.push_back(as_floats(input));
    Tensor result = Tensor::empty(DType::kF32, out.shape());
    function(copies, result);
    cpu::copy({.from = result, .to = out}, threads_);
  }

  // make(dtype, inputs, out) returns the work on a range of rows; `cost` is that of one element.
  template <typename Make>
  void by_rows(std::initializer_list<const Tensor*> inputs, Tensor& out, int64_t cost, Make&& make) {
    if (out.numel() == 0) return;
    const auto go = [&](DType dtype, const std::vector<Tensor>& in, Tensor& to) {
      const Rows rows(to, "rows");
      parallel_chunks(threads_, rows.count(), rows.columns() * cost, make(dtype, in, to));
    };
    bool same = is_row_dtype(out.dtype());
    std::vector<Tensor> in;
    for (const Tensor* input : inputs) {
      same = same && input->dtype() == out.dtype();
      in.push_back(*input);
    }
    if (same) return go(out.dtype(), in, out);
    with_floats(inputs, out,
                [&](const std::vector<Tensor>& copies, Tensor& result) { go(DType::kF32, copies, result); });
  }

  // Rows of an operand stretched to the output's shape; one element a row when its last axis has size 1.
  static std::pair<Rows, bool> broadcast_rows(const Tensor& operand, const Shape& shape) {
    const bool scalar = !shape.empty() && shape.back() != 1 && (operand.rank() == 0 || operand.dim(-1) == 1);
    Shape wanted = shape;
    if (scalar) wanted.back() = 1;
    return {Rows(operand.broadcast_to(wanted), "binary"), scalar};
  }

  DType conv_dtype(DType activations) const {
    return activations == DType::kBF16 && multiplies_bf16(level_) ? DType::kBF16 : DType::kF32;
  }

  std::shared_ptr<const PackedFilter> packed_filter(const ConvWeight& weight, DType activations) const {
    auto filter = std::make_shared<PackedFilter>();
    filter->weight = converted(weight.weight, conv_dtype(activations), threads_).contiguous();
    if (weight.bias.defined()) filter->bias = converted(weight.bias, DType::kF32, threads_).contiguous();
    return filter;
  }

  int threads_;
  Level level_;
  OneDnn onednn_;
  Linear linear_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads) {
  const int available = omp_get_num_procs();  // honours the process's affinity
  if (threads < 0 || threads > available)
    fail(Code::kBadInput, "cpu", "number of threads",
         {.expected = "1 to " + std::to_string(available) + ", or 0 for all", .got = std::to_string(threads)});
  const Level level = active_level();
  return std::make_unique<CpuBackend>(threads == 0 ? available : threads, level);
}

}  // namespace lockstep
