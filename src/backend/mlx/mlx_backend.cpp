#include "backend/mlx/mlx_backend.h"

#include <unistd.h>

#include <algorithm>

#include "backend/check_weight.h"
#include "backend/mlx/library.h"
#include "backend/mlx/storage.h"
#include "backend/quantize.h"
#include "base/error.h"
#include "tensor/rehearsal.h"

namespace lockstep {
namespace {

using mlx::MlxStorage;
using mlx::Outcome;
using mlx::View;

bool mlx_computes_in(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

struct MlxLinear {
  Tensor weight, bias, scales, biases;
};
struct MlxFilter {
  Tensor filter;  // [O, kh, kw, I]
  Tensor bias;
};

class MlxBackend final : public Backend {
 public:
  MlxBackend() : leaf_(*mlx::library().leaf), facts_(mlx::library().facts) {}

  std::string description() const override {
    return std::string("mlx ") + facts_.version + ", " + (facts_.gpu ? facts_.device : "its CPU form, 1 thread");
  }

  Tensor allocate(DType dtype, const Shape& shape) override {
    const auto bytes = static_cast<size_t>(checked_numel(shape)) * dtype_bytes(dtype);
    return Tensor::on(std::make_shared<MlxStorage>(leaf_, account_, bytes), dtype, shape);
  }
  Tensor upload(const Tensor& tensor) override {
    if (!tensor.defined() || !tensor.on_host()) return tensor;
    Tensor to = allocate(tensor.dtype(), tensor.shape());
    if (rehearsing() || tensor.numel() == 0) return to;
    const Tensor packed = tensor.contiguous();
    run("upload", leaf_.upload(slot(to), packed.strided_data(), static_cast<int>(packed.dtype()),
                               static_cast<size_t>(packed.numel())));
    return to;
  }
  MemoryUse memory() const override { return account_->use(); }
  void reset_peak() override { account_->reset_peak(); }
  uint64_t available_bytes() const override {
    if (!facts_.total_bytes || !facts_.gpu) return Backend::available_bytes();
    return facts_.total_bytes - std::min(facts_.total_bytes, account_->use().in_use_bytes);
  }
  void flush() override { run("flush", leaf_.flush()); }
  void synchronize() override { run("synchronize", leaf_.synchronize()); }

  bool prepare(LinearWeight& weight, DType activations) override {
    refuse_fp8(weight, "MLX");
    check_weight(weight);
    auto made = std::make_shared<MlxLinear>();
    const DType dtype = mlx_computes_in(activations) ? activations : DType::kF32;
    made->weight = weight.bits ? lent(weight.weight, DType::kU32) : lent(weight.weight, dtype);
    if (weight.bits) {
      made->scales = lent(weight.scales, dtype);
      made->biases = lent(weight.biases, dtype);
    }
    if (weight.bias.defined()) made->bias = cast(upload(weight.bias), dtype);
    weight.prepared = std::move(made);
    return true;
  }
  bool prepare(ConvWeight& weight, DType activations) override {
    const DType dtype = mlx_computes_in(activations) ? activations : DType::kF32;
    auto made = std::make_shared<MlxFilter>();
    made->filter = settled(cast(packed(upload(weight.weight).permute({0, 2, 3, 1})), dtype));
    if (weight.bias.defined()) made->bias = cast(upload(weight.bias), dtype);
    weight.prepared = std::move(made);
    return true;
  }

  void linear(const LinearArgs& args) override {
    check_weight(args.weight);
    if (args.x.dim(-1) != args.weight.inputs())
      fail(Code::kBadInput, "linear", "the last axis of x is not the weight's input width",
           {.expected = std::to_string(args.weight.inputs()), .got = to_string(args.x.shape())});
    const MlxLinear own = linear_of(args.weight);
    const Operand x(*this, &args.x), weight(own.weight), bias(*this, given(own.bias)), scales(*this, given(own.scales)),
        biases(*this, given(own.biases)), multiply(*this, args.multiply), residual(*this, args.residual),
        gate(*this, args.gate);
    into(args.out, "linear", [&](View* out) {
      const mlx::LinearTask task{.x = x.view(),
                                 .weight = weight.view(),
                                 .bias = bias.view(),
                                 .scales = scales.view(),
                                 .biases = biases.view(),
                                 .multiply = multiply.view(),
                                 .residual = residual.view(),
                                 .gate = gate.view(),
                                 .out = out,
                                 .bits = args.weight.bits,
                                 .group_size = args.weight.group_size,
                                 .activation = static_cast<int>(args.activation)};
      return leaf_.linear(&task);
    });
  }

  void attention(const AttentionArgs& args) override {
    const Operand q(*this, &args.q), k(*this, &args.k), v(*this, &args.v);
    const std::optional<Operand> mask = args.key_mask ? std::optional<Operand>(*args.key_mask) : std::nullopt;
    into(args.out, "attention", [&](View* out) {
      const mlx::AttentionTask task{.q = q.view(),
                                    .k = k.view(),
                                    .v = v.view(),
                                    .key_mask = mask ? mask->view() : nullptr,
                                    .out = out,
                                    .scale = args.scale,
                                    .causal = args.causal,
                                    .segment_ends = args.segment_ends.data(),
                                    .segments = args.segment_ends.size()};
      return leaf_.attention(&task);
    });
  }

  void rms_norm(const RmsNormArgs& args) override {
    const Operand x(*this, &args.x), weight(*this, args.weight);
    into(args.out, "rms_norm", [&](View* out) { return leaf_.rms_norm(x.view(), weight.view(), out, args.eps); });
  }

  void layer_norm(const LayerNormArgs& args) override {
    const Operand x(*this, &args.x), weight(*this, args.weight), bias(*this, args.bias), scale(*this, args.scale),
        shift(*this, args.shift);
    into(args.out, "layer_norm", [&](View* out) {
      return leaf_.layer_norm(x.view(), weight.view(), bias.view(), scale.view(), shift.view(), out, args.eps);
    });
  }

  void head_norm_rope(const HeadNormRopeArgs& args) override {
    constexpr int64_t kWidestHead = 512;
    if (args.x.dim(3) > kWidestHead)
      fail(Code::kUnsupported, "head_norm_rope", "head width",
           {.expected = "at most " + std::to_string(kWidestHead), .got = std::to_string(args.x.dim(3))});
    if (args.style != RopeStyle::kNone && (!args.cos || !args.sin || args.x.dim(3) % 2 != 0))
      fail(Code::kBadInput, "head_norm_rope", "a rotation needs cos, sin and an even head width");
    const Operand x(*this, &args.x), weight(*this, args.weight), cos(*this, args.cos), sin(*this, args.sin);
    into(args.out, "head_norm_rope", [&](View* out) {
      return leaf_.head_norm_rope(x.view(), weight.view(), cos.view(), sin.view(), out, args.eps,
                                  static_cast<int>(args.style));
    });
  }

  void add_gated(const AddGatedArgs& args) override {
    const Operand x(*this, &args.x), gate(*this, &args.gate), y(*this, &args.y);
    into(args.out, "add_gated", [&](View* out) { return leaf_.add_gated(x.view(), gate.view(), y.view(), out); });
  }

  void unary(const UnaryArgs& args) override {
    const Operand x(*this, &args.x);
    into(args.out, "unary", [&](View* out) { return leaf_.unary(static_cast<int>(args.op), x.view(), out); });
  }

  void binary(const BinaryArgs& args) override {
    const Operand a(*this, &args.a), b(*this, &args.b);
    into(args.out, "binary",
         [&](View* out) { return leaf_.binary(static_cast<int>(args.op), a.view(), b.view(), out); });
  }

  void conv2d(const Conv2dArgs& args) override {
    const MlxFilter own = filter_of(args.weight);
    const Operand x(*this, &args.x), filter(*this, &own.filter), bias(*this, given(own.bias)),
        residual(*this, args.residual);
    into(args.out, "conv2d", [&](View* out) {
      const mlx::ConvTask task{.x = x.view(),
                               .filter = filter.view(),
                               .bias = bias.view(),
                               .residual = residual.view(),
                               .out = out,
                               .stride = args.stride,
                               .pad_top = args.pad_top,
                               .pad_left = args.pad_left,
                               .pad_bottom = args.pad_bottom,
                               .pad_right = args.pad_right};
      return leaf_.conv2d(&task);
    });
  }

  void channel_norm(const ChannelNormArgs& args) override {
    const Operand x(*this, &args.x), gamma(*this, &args.gamma);
    into(args.out, "channel_norm",
         [&](View* out) { return leaf_.channel_norm(x.view(), gamma.view(), out, args.silu); });
  }

  void guidance(const GuidanceArgs& args) override {
    const Operand cond(*this, &args.cond), uncond(*this, &args.uncond);
    into(args.out, "guidance",
         [&](View* out) { return leaf_.guidance(cond.view(), uncond.view(), out, args.scale, args.rescale); });
  }

  void euler_step(const EulerStepArgs& args) override {
    const Operand x(*this, &args.x), velocity(*this, &args.velocity);
    into(args.out, "euler_step", [&](View* out) { return leaf_.euler_step(x.view(), velocity.view(), out, args.dt); });
  }

  void denormalize(const DenormalizeArgs& args) override {
    const Operand x(*this, &args.x), inverse_std(*this, &args.inverse_std), mean(*this, &args.mean);
    into(args.out, "denormalize",
         [&](View* out) { return leaf_.denormalize(x.view(), inverse_std.view(), mean.view(), out); });
  }

  void pixels(const PixelsArgs& args) override {
    const Operand x(*this, &args.x);
    if (args.out.numel() == 0 || rehearsing()) return;
    View out = mlx::view_of(args.out, "pixels");
    run("pixels", leaf_.pixels(x.view(), &out));
  }

  void gather(const GatherArgs& args) override {
    if (rehearsing()) return;
    const Tensor ids = args.ids.host().contiguous();
    for (int64_t i = 0; i < ids.numel(); ++i)
      if (const int64_t id = ids.data<int64_t>()[i]; id < 0 || id >= args.table.dim(0))
        fail(Code::kBadInput, "gather", "row out of range",
             {.expected = "0 to " + std::to_string(args.table.dim(0) - 1), .got = std::to_string(id)});
    const Operand table(*this, &args.table), rows(upload(args.ids));
    into(args.out, "gather", [&](View* out) { return leaf_.gather(table.view(), rows.view(), out); });
  }

  void copy(const CopyArgs& args) override {
    if (args.from.shape() != args.to.shape())
      fail(Code::kBadInput, "copy", "shapes differ",
           {.expected = to_string(args.to.shape()), .got = to_string(args.from.shape())});
    if (args.to.numel() == 0 || rehearsing()) return;
    Tensor from = args.from;
    if (from.dtype() != args.to.dtype() && !(mlx_computes_in(from.dtype()) && mlx_computes_in(args.to.dtype())))
      from = upload(from.host().contiguous().to(args.to.dtype()));
    const View source = mlx::view_of(from, "copy");
    View to = mlx::view_of(args.to, "copy");
    run("copy", leaf_.copy(&source, &to));
  }

 private:
  // A tensor as the leaf sees it, in a dtype that MLX computes in; nothing when it was left out.
  class Operand {
   public:
    Operand(MlxBackend& backend, const Tensor* tensor) {
      if (!tensor) return;
      if (!tensor->defined()) fail(Code::kBadInput, "kernel", "a tensor without storage");
      tensor_ = mlx_computes_in(tensor->dtype()) ? *tensor : backend.cast(*tensor, DType::kF32);
      look();
    }
    explicit Operand(const Tensor& as_it_is) : tensor_(as_it_is) { look(); }
    const View* view() const { return tensor_.defined() ? &view_ : nullptr; }

   private:
    void look() {
      if (!rehearsing()) view_ = mlx::view_of(tensor_, "kernel");
    }
    Tensor tensor_;
    View view_{};
  };

  static const Tensor* given(const Tensor& tensor) { return tensor.defined() ? &tensor : nullptr; }
  void run(const char* operation, Outcome outcome) const { mlx::check(leaf_, outcome, operation); }
  static mlx::Slot* slot(const Tensor& tensor) { return static_cast<mlx::Slot*>(tensor.storage()->device()); }

  Tensor cast(const Tensor& tensor, DType dtype) {
    if (tensor.dtype() == dtype) return tensor;
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
  // Computed now: what it was made from is let go.
  Tensor settled(const Tensor& tensor) {
    if (!rehearsing()) run("weights", leaf_.evaluate(slot(tensor)));
    return tensor;
  }

  // A weight stays where the file's mapping has it where MLX can read it there, and is copied once elsewhere.
  Tensor lent(const Tensor& weight, DType dtype) {
    if (!weight.on_host() || !weight.is_contiguous() || weight.numel() == 0 ||
        (weight.dtype() != dtype && !mlx_computes_in(weight.dtype())))
      return settled(cast(upload(weight), dtype));
    Tensor there = allocate(weight.dtype(), weight.shape());
    if (!rehearsing()) {
      static const auto page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
      mlx::lend(leaf_, weight, static_cast<const MlxStorage&>(*there.storage()), facts_.gpu ? page_bytes : 0);
    }
    return settled(cast(there, dtype));
  }

  MlxLinear linear_of(const LinearWeight& weight) {
    if (weight.prepared) return *static_cast<const MlxLinear*>(weight.prepared.get());
    const auto here = [&](const Tensor& part) { return part.defined() ? upload(part) : Tensor(); };
    MlxLinear own{here(weight.weight), here(weight.bias), here(weight.scales), here(weight.biases)};
    if (!weight.bits && !mlx_computes_in(own.weight.dtype())) own.weight = cast(own.weight, DType::kF32);
    return own;
  }
  MlxFilter filter_of(const ConvWeight& weight) {
    if (weight.prepared) return *static_cast<const MlxFilter*>(weight.prepared.get());
    return {upload(weight.weight).permute({0, 2, 3, 1}), weight.bias.defined() ? upload(weight.bias) : Tensor()};
  }

  // Runs `kernel` on the output, or on a float one that is then converted.
  template <typename Kernel>
  void into(Tensor& out, const char* operation, Kernel&& kernel) {
    if (out.numel() == 0) return;
    Tensor target = mlx_computes_in(out.dtype()) ? out : allocate(DType::kF32, out.shape());
    if (!rehearsing()) {
      View view = mlx::view_of(target, operation);
      run(operation, kernel(&view));
    }
    if (target.storage() != out.storage()) copy({.from = target, .to = out});
  }

  const mlx::Leaf& leaf_;
  mlx::Facts facts_;
  std::shared_ptr<mlx::Account> account_ = std::make_shared<mlx::Account>();
};

}  // namespace

std::unique_ptr<Backend> make_mlx_backend() {
  const mlx::Library& found = mlx::library();
  if (!found.leaf)
    fail(Code::kDevice, "mlx", "MLX cannot be used: " + found.why, {.hint = "--device cpu, or lockstep doctor"});
  return std::make_unique<MlxBackend>();
}

}  // namespace lockstep
