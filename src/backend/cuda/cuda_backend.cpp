#include "backend/cuda/cuda_backend.h"

#include <algorithm>

#include "backend/cuda/attention.h"
#include "backend/cuda/captured.h"
#include "backend/cuda/device.h"
#include "backend/cuda/linear.h"
#include "base/error.h"
#include "tensor/rehearsal.h"

namespace lockstep {
namespace {

using cuda::ConvTask;
using cuda::Device;
using cuda::Stream;
using cuda::View;

bool is_kernel_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

int64_t rows_in(const Tensor& tensor) {
  return tensor.rank() == 0 || tensor.dim(-1) == 0 ? 1 : tensor.numel() / tensor.dim(-1);
}

struct DeviceFilter {
  Tensor filter;  // [O, kh, kw, C]
  Tensor bias;    // [O] or undefined
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int index) : device_(Device::open(index)), linear_(device_) {}
  ~CudaBackend() override { device_->drop_deferred(); }

  std::string description() const override {
    const cuda::DeviceFacts& facts = device_->facts();
    return device_->place() + ", " + facts.name + (facts.cudnn_version ? "" : ", without cuDNN");
  }

  Tensor allocate(DType dtype, const Shape& shape) override { return device_->allocate(dtype, shape); }
  Tensor upload(const Tensor& tensor) override {
    if (!tensor.defined() || !tensor.on_host()) return tensor;
    Tensor to = device_->allocate(tensor.dtype(), tensor.shape());
    if (!rehearsing()) device_->upload(tensor.contiguous(), to);
    return to;
  }
  MemoryUse memory() const override { return device_->memory(); }
  uint64_t available_bytes() const override { return device_->free_bytes(); }
  void reset_peak() override { device_->reset_peak(); }
  void synchronize() override { device_->synchronize(); }
  void start_profile() override { device_->start_profile(); }
  std::vector<KernelTime> end_profile() override { return device_->end_profile(); }
  std::unique_ptr<Repeated> repeated(Body body) override {
    if (linear_.stream().active()) return Backend::repeated(std::move(body));  // a graph has no weights that travel
    return cuda::captured(device_, std::move(body));
  }
  bool hold_weights(uint64_t bytes) override {
    linear_.stream().hold(bytes);
    return true;
  }
  uint64_t most_weight_bytes() const override { return linear_.stream().most_held(); }

  bool prepare(LinearWeight& weight, DType activations) override {
    linear_.prepare(weight, activations);
    return true;
  }
  bool prepare(ConvWeight& weight, DType activations) override {
    const Tensor host = weight.weight;
    const DType dtype = is_kernel_dtype(activations) ? activations : DType::kF32;
    auto made = std::make_shared<DeviceFilter>();
    made->filter = upload(rehearsing() ? host : host.permute({0, 2, 3, 1}).contiguous().to(dtype));
    made->bias = cast(upload(weight.bias), dtype);
    weight.prepared = std::move(made);
    return true;
  }

  void linear(const LinearArgs& args) override { linear_.run(args); }

  void attention(const AttentionArgs& args) override {
    const DType dtype = is_kernel_dtype(args.q.dtype()) ? args.q.dtype() : DType::kF32;
    const Tensor q = cast(args.q, dtype), k = cast(args.k, dtype), v = cast(args.v, dtype);
    into(args.out, dtype, [&](Tensor& out) {
      cuda::attention(*device_, {.q = q,
                                 .k = k,
                                 .v = v,
                                 .out = out,
                                 .scale = args.scale,
                                 .causal = args.causal,
                                 .key_mask = args.key_mask,
                                 .segment_ends = args.segment_ends});
    });
  }

  void rms_norm(const RmsNormArgs& args) override {
    const DType dtype = kernel_dtype(args.x);
    const Tensor x = rows(cast(args.x, dtype)), weight = small(args.weight);
    if (args.weight && args.out.dtype() != dtype) {  // the rounding to x's dtype comes before the weight
      Tensor normal = allocate(dtype, x.shape());
      rms_norm({.x = x, .out = normal, .eps = args.eps});
      return binary({.op = BinaryOp::kMultiply, .a = normal, .b = weight, .out = args.out});
    }
    into(args.out, dtype, [&](Tensor& out) {
      const View from = view(x), w = optional(weight);
      View to = view(out);
      issue("rms_norm", {&x, &weight}, out, [&](Stream stream) {
        return device_->leaf().rms_norm(&from, weight.defined() ? &w : nullptr, &to, args.eps, stream);
      });
    });
  }

  void layer_norm(const LayerNormArgs& args) override {
    const DType dtype = kernel_dtype(args.x);
    const Tensor x = rows(cast(args.x, dtype)), weight = small(args.weight), bias = small(args.bias),
                 scale = small(args.scale), shift = small(args.shift);
    const int64_t batch = args.scale ? args.scale->dim(0) : args.shift ? args.shift->dim(0) : 1;
    const int64_t share = std::max<int64_t>(1, rows_in(x) / std::max<int64_t>(1, batch));
    if (args.scale && args.shift && !args.weight && !args.bias && x.storage() == args.x.storage())
      if (const std::optional<cuda::GatedSum> sum = device_->take(x)) {
        if (rehearsing() || gated_norm(*sum, args, scale, shift)) return;
        device_->defer(*sum);
      }
    into(args.out, dtype, [&](Tensor& out) {
      const View from = view(x), w = optional(weight), b = optional(bias), s = optional(scale), h = optional(shift);
      View to = view(out);
      const auto given = [](const Tensor& tensor, const View& v) { return tensor.defined() ? &v : nullptr; };
      const auto launch = [&](void* fp8, float* fp8_scales) {
        return [&, fp8, fp8_scales](Stream stream) {
          return device_->leaf().layer_norm(&from, &to, args.eps, given(weight, w), given(bias, b), given(scale, s),
                                            given(shift, h), share, fp8, fp8_scales, stream);
        };
      };
      if (args.scale && args.shift)
        if (const cuda::Fp8Rows small = linear_.room_for_fp8(out); small.rows.defined())
          if (device_->try_issue("layer_norm", {&x, &scale, &shift}, {&out, &small.rows, &small.scales}, rows_in(out),
                                 launch(address(small.rows), static_cast<float*>(address(small.scales)))))
            return linear_.remember(out, small);
      issue("layer_norm", {&x, &weight, &bias, &scale, &shift}, out, launch(nullptr, nullptr));
    });
  }

  void head_norm_rope(const HeadNormRopeArgs& args) override {
    constexpr int64_t kWidestHead = 512;
    if (args.x.dim(3) > kWidestHead)
      fail(Code::kUnsupported, "head_norm_rope", "head width",
           {.expected = "at most " + std::to_string(kWidestHead), .got = std::to_string(args.x.dim(3))});
    if (args.style != RopeStyle::kNone && (!args.cos || !args.sin || args.x.dim(3) % 2 != 0))
      fail(Code::kBadInput, "head_norm_rope", "a rotation needs cos, sin and an even head width");
    const DType dtype = kernel_dtype(args.x);
    const Tensor x = rows(cast(args.x, dtype)), weight = small(args.weight);
    const Tensor cos = args.cos ? packed(*args.cos) : Tensor(), sin = args.sin ? packed(*args.sin) : Tensor();
    into(args.out, dtype, [&](Tensor& out) {
      const View from = view(x), w = optional(weight);
      View to = view(out);
      const auto table = [&](const Tensor& tensor) {
        return tensor.defined() ? static_cast<const float*>(device_->address(tensor, "head_norm_rope")) : nullptr;
      };
      issue("head_norm_rope", {&x, &weight, &cos, &sin}, out, [&](Stream stream) {
        return device_->leaf().head_norm_rope(&from, &to, weight.defined() ? &w : nullptr, args.eps,
                                              static_cast<int>(args.style), table(cos), table(sin), stream);
      });
    });
  }

  void add_gated(const AddGatedArgs& args) override {
    const DType dtype = kernel_dtype(args.out);
    const Tensor x = rows(cast(args.x, dtype)), gate = rows(cast(args.gate, dtype)), y = rows(cast(args.y, dtype));
    into(args.out, dtype, [&](Tensor& out) {
      const View a = view(x), g = view(gate), b = view(y);
      View to = view(out);
      issue("add_gated", {&x, &gate, &y}, out,
            [&](Stream stream) { return device_->leaf().add_gated(&a, &g, &b, &to, stream); });
    });
  }

  void unary(const UnaryArgs& args) override {
    const DType dtype = kernel_dtype(args.out);
    const Tensor x = cast(args.x, dtype);
    into(args.out, dtype, [&](Tensor& out) {
      const View from = view(x);
      View to = view(out);
      issue("unary", {&x}, out,
            [&](Stream stream) { return device_->leaf().unary(static_cast<int>(args.op), &from, &to, stream); });
    });
  }

  void binary(const BinaryArgs& args) override {
    const DType dtype = kernel_dtype(args.out);
    const Tensor a = cast(args.a, dtype).broadcast_to(args.out.shape()),
                 b = cast(args.b, dtype).broadcast_to(args.out.shape());
    into(args.out, dtype, [&](Tensor& out) {
      const View x = view(a), y = view(b);
      View to = view(out);
      issue("binary", {&a, &b}, out,
            [&](Stream stream) { return device_->leaf().binary(static_cast<int>(args.op), &x, &y, &to, stream); });
    });
  }

  void conv2d(const Conv2dArgs& args) override;

  void channel_norm(const ChannelNormArgs& args) override {
    const DType dtype = kernel_dtype(args.x);
    const Tensor x = rows(cast(args.x, dtype)), gamma = small(&args.gamma);
    into(args.out, dtype, [&](Tensor& out) {
      const View from = view(x), g = view(gamma);
      View to = view(out);
      issue("channel_norm", {&x, &gamma}, out,
            [&](Stream stream) { return device_->leaf().channel_norm(&from, &g, &to, args.silu, stream); });
    });
  }

  void gather(const GatherArgs& args) override {
    if (rehearsing()) return;
    const Tensor ids = args.ids.host().contiguous();
    for (int64_t i = 0; i < ids.numel(); ++i)
      if (const int64_t id = ids.data<int64_t>()[i]; id < 0 || id >= args.table.dim(0))
        fail(Code::kBadInput, "gather", "row out of range",
             {.expected = "0 to " + std::to_string(args.table.dim(0) - 1), .got = std::to_string(id)});
    const Tensor on = upload(ids);
    into(args.out, args.table.dtype(), [&](Tensor& out) {
      const View table = view(args.table);
      View to = view(out);
      issue("gather", {&args.table, &on}, out, [&](Stream stream) {
        return device_->leaf().gather(&table, static_cast<const int64_t*>(device_->address(on, "gather")), &to, stream);
      });
    });
  }

  void guidance(const GuidanceArgs& args) override {
    const DType dtype = kernel_dtype(args.out);
    const Tensor cond = rows(cast(args.cond, dtype)), uncond = rows(cast(args.uncond, dtype));
    into(args.out, dtype, [&](Tensor& out) {
      const View a = view(cond), b = view(uncond);
      View to = view(out);
      issue("guidance", {&cond, &uncond}, out,
            [&](Stream stream) { return device_->leaf().guidance(&a, &b, &to, args.scale, args.rescale, stream); });
    });
  }

  void euler_step(const EulerStepArgs& args) override {
    const DType dtype = kernel_dtype(args.velocity);
    const Tensor x = packed(cast(args.x, dtype)), v = packed(cast(args.velocity, dtype));
    into(args.out, dtype, [&](Tensor& out) {
      const View a = view(x), b = view(v);
      View to = view(out);
      issue("euler_step", {&x, &v}, out,
            [&](Stream stream) { return device_->leaf().euler_step(&a, &b, &to, args.dt, stream); });
    });
  }

  void denormalize(const DenormalizeArgs& args) override {
    const int64_t channels = args.x.dim(1), inner = args.x.numel() / std::max<int64_t>(1, args.x.dim(0) * channels);
    into(args.out, kernel_dtype(args.x), [&](Tensor& out) {
      const View from = view(args.x);
      View to = view(out);
      const auto* inverse_std = static_cast<const float*>(device_->address(args.inverse_std, "denormalize"));
      const auto* mean = static_cast<const float*>(device_->address(args.mean, "denormalize"));
      issue("denormalize", {&args.x, &args.inverse_std, &args.mean}, out, [&](Stream stream) {
        return device_->leaf().denormalize(&from, inverse_std, mean, &to, channels, inner, stream);
      });
    });
  }

  void pixels(const PixelsArgs& args) override {
    if (args.out.numel() == 0 || rehearsing()) return;
    const Tensor x = cast(args.x, kernel_dtype(args.x));
    const View from = view(x);
    View to = view(args.out);
    issue("pixels", {&x}, args.out, [&](Stream stream) { return device_->leaf().pixels(&from, &to, stream); });
  }

  void torch_cuda_normals(uint64_t seed, Tensor& out) override {
    into(out, kernel_dtype(out), [&](Tensor& drawn) {
      Tensor whole = drawn.is_contiguous() ? drawn : allocate(drawn.dtype(), drawn.shape());
      View to = view(whole);
      issue("noise", {}, whole,
            [&](Stream stream) { return device_->leaf().philox_normals(device_->context(), seed, &to, stream); });
      if (whole.storage() != drawn.storage()) copy({.from = whole, .to = drawn});
    });
  }

  void copy(const CopyArgs& args) override {
    if (args.from.shape() != args.to.shape())
      fail(Code::kBadInput, "copy", "shapes differ",
           {.expected = to_string(args.to.shape()), .got = to_string(args.from.shape())});
    if (args.to.numel() == 0 || rehearsing()) return;
    if (args.from.dtype() != args.to.dtype() &&
        !(is_kernel_dtype(args.from.dtype()) && is_kernel_dtype(args.to.dtype())))
      return copy_through_host(args);
    const View from = view(args.from);
    View to = view(args.to);
    issue("copy", {&args.from}, args.to, [&](Stream stream) { return device_->leaf().copy_view(&from, &to, stream); });
  }

 private:
  // The norm of a sum that was put off. False where one kernel cannot do both.
  bool gated_norm(const cuda::GatedSum& sum, const LayerNormArgs& args, const Tensor& scale, const Tensor& shift) {
    const View x = view(sum.x), gate = view(sum.gate), y = view(sum.y), s = view(scale), h = view(shift);
    View total = view(sum.out), to = view(args.out);
    const auto launch = [&](void* fp8, float* fp8_scales) {
      return [&, fp8, fp8_scales](Stream stream) {
        return device_->leaf().gated_norm(&x, &gate, &y, &total, &to, args.eps, &s, &h, sum.rows_per_batch, fp8,
                                          fp8_scales, stream);
      };
    };
    const cuda::Fp8Rows small = linear_.room_for_fp8(args.out);
    if (!small.rows.defined())
      return device_->try_issue("gated norm", {&sum.x, &sum.gate, &sum.y, &scale, &shift}, {&sum.out, &args.out},
                                rows_in(sum.out), launch(nullptr, nullptr));
    if (!device_->try_issue("gated norm", {&sum.x, &sum.gate, &sum.y, &scale, &shift},
                            {&sum.out, &args.out, &small.rows, &small.scales}, rows_in(sum.out),
                            launch(address(small.rows), static_cast<float*>(address(small.scales)))))
      return false;
    linear_.remember(args.out, small);
    return true;
  }

  // Dtypes that no model computes in.
  void copy_through_host(const CopyArgs& args) {
    const Tensor there = upload(args.from.host().contiguous().to(args.to.dtype()));
    copy({.from = there, .to = args.to});
  }

  static DType kernel_dtype(const Tensor& tensor) {
    return is_kernel_dtype(tensor.dtype()) ? tensor.dtype() : DType::kF32;
  }
  View view(const Tensor& tensor) const { return rehearsing() ? View{} : device_->view(tensor, "tensor"); }
  void* address(const Tensor& tensor) const { return device_->address(tensor, "tensor"); }
  View optional(const Tensor& tensor) const { return tensor.defined() ? view(tensor) : View{}; }

  Tensor cast(const Tensor& tensor, DType dtype) {
    if (!tensor.defined() || tensor.dtype() == dtype) return tensor;
    Tensor out = allocate(dtype, tensor.shape());
    copy({.from = tensor, .to = out});
    return out;
  }
  Tensor packed(const Tensor& tensor) {
    if (tensor.is_contiguous()) return tensor;
    Tensor out = allocate(tensor.dtype(), tensor.shape());
    copy({.from = tensor, .to = out});
    return out;
  }
  // Contiguous in its last axis.
  Tensor rows(const Tensor& tensor) {
    return tensor.rank() == 0 || tensor.dim(-1) <= 1 || tensor.strides().back() == 1 ? tensor : packed(tensor);
  }
  // A weight, gate or shift: of a dtype that the kernels widen as they read.
  Tensor small(const Tensor* tensor) {
    if (!tensor) return {};
    return rows(is_kernel_dtype(tensor->dtype()) ? *tensor : cast(*tensor, DType::kF32));
  }

  // Runs `kernel` on an output of that dtype with contiguous rows, then brings it where it belongs.
  template <typename Kernel>
  void into(Tensor& out, DType dtype, Kernel&& kernel) {
    if (out.numel() == 0) return;
    const bool direct = out.dtype() == dtype && (out.dim(-1) <= 1 || out.strides().back() == 1);
    Tensor target = direct ? out : allocate(dtype, out.shape());
    if (!rehearsing()) kernel(target);
    if (!direct) copy({.from = target, .to = out});
  }

  template <typename Launch>
  void issue(const char* operation, std::initializer_list<const Tensor*> inputs, const Tensor& out, Launch&& launch) {
    if (rehearsing()) return;
    device_->issue(operation, inputs, {&out}, rows_in(out), std::forward<Launch>(launch));
  }

  DeviceFilter filter_of(const ConvWeight& weight, DType dtype) {
    if (weight.prepared) {
      const auto& made = *static_cast<const DeviceFilter*>(weight.prepared.get());
      return {cast(made.filter, dtype), cast(made.bias, dtype)};
    }
    return {packed(cast(weight.weight, dtype).permute({0, 2, 3, 1})), cast(weight.bias, dtype)};
  }

  std::shared_ptr<Device> device_;
  cuda::Linear linear_;
};

// A 1x1 kernel is a linear layer. Otherwise cuDNN, and where it has no kernel the patches are unfolded, a part at a
// time, and multiplied.
void CudaBackend::conv2d(const Conv2dArgs& args) {
  if (args.out.numel() == 0) return;
  const DType dtype = kernel_dtype(args.x);
  const Tensor x = packed(cast(args.x, dtype));
  const DeviceFilter filter = filter_of(args.weight, dtype);
  const int64_t kernel_height = args.weight.weight.dim(2), kernel_width = args.weight.weight.dim(3);
  const int64_t outputs = args.out.dim(3), width = kernel_height * kernel_width * args.x.dim(3);
  const Tensor residual = args.residual ? packed(cast(*args.residual, dtype)) : Tensor();
  const bool direct = args.out.dtype() == dtype && args.out.is_contiguous();
  Tensor out = direct ? args.out : allocate(dtype, args.out.shape());
  const int64_t pixels = out.numel() / outputs;
  const bool plain = kernel_height == 1 && kernel_width == 1 && args.stride == 1 && !args.pad_top && !args.pad_left &&
                     !args.pad_bottom && !args.pad_right;
  constexpr int64_t kUnfoldedBytes = int64_t{256} << 20;
  const Tensor flat_residual = residual.defined() ? residual.reshape({pixels, outputs}) : Tensor();
  Tensor flat_out = out.reshape({pixels, outputs});
  if (rehearsing()) {
    if (!plain)
      allocate(
          dtype,
          {std::min(pixels, std::max<int64_t>(1, kUnfoldedBytes / (width * static_cast<int64_t>(dtype_bytes(dtype))))),
           width});
  } else if (plain) {
    linear_.product(x.reshape({pixels, width}), filter.filter.reshape({outputs, width}), filter.bias, flat_out, false,
                    residual.defined() ? &flat_residual : nullptr);
  } else {
    ConvTask task{};
    task.x = view(x);
    task.out = view(out);
    task.residual = optional(residual);
    task.filter = device_->address(filter.filter, "conv2d");
    task.bias = filter.bias.defined() ? device_->address(filter.bias, "conv2d") : nullptr;
    task.kernel_height = kernel_height;
    task.kernel_width = kernel_width;
    task.stride = args.stride;
    task.pad_top = args.pad_top;
    task.pad_left = args.pad_left;
    task.pad_bottom = args.pad_bottom;
    task.pad_right = args.pad_right;
    const bool done = device_->try_issue(
        "conv2d", {&x, &filter.filter, &filter.bias, &residual}, {&out}, pixels,
        [&](Stream stream) { return device_->leaf().convolve_by_library(device_->context(), &task, stream); });
    const int64_t part =
        std::clamp<int64_t>(kUnfoldedBytes / (width * static_cast<int64_t>(dtype_bytes(dtype))), 1, pixels);
    for (int64_t first = 0; !done && first < pixels; first += part) {
      const int64_t count = std::min(part, pixels - first);
      Tensor columns = allocate(dtype, {count, width});
      issue("conv2d", {&x}, columns, [&](Stream stream) {
        return device_->leaf().unfold(&task, device_->address(columns, "conv2d"), first, count, stream);
      });
      Tensor rows_out = flat_out.slice(0, first, first + count);
      const Tensor added = residual.defined() ? flat_residual.slice(0, first, first + count) : Tensor();
      linear_.product(columns, filter.filter.reshape({outputs, width}), filter.bias, rows_out, false,
                      added.defined() ? &added : nullptr);
    }
  }
  if (!direct) copy({.from = out, .to = args.out});
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(int device) {
  return std::make_unique<CudaBackend>(device);
}

}  // namespace lockstep
