#include "backend/reference/reference_backend.h"

#include "backend/check_storage.h"
#include "backend/quantize.h"
#include "backend/reference/kernels.h"
#include "backend/sampling.h"
#include "tensor/rehearsal.h"

namespace lockstep {
namespace {

class ReferenceBackend final : public Backend {
 public:
  std::string description() const override { return "reference, f64 accumulation, 1 thread"; }
  bool prepare(LinearWeight& weight, DType) override {
    refuse_fp8(weight, "the reference");
    return false;
  }
  bool prepare(ConvWeight&, DType) override { return false; }
  void linear(const LinearArgs& args) override {
    check_storage("linear", {&args.x, &args.weight.weight, &args.out, args.multiply, args.residual, args.gate});
    if (!rehearsing()) reference::linear(args);
  }
  void attention(const AttentionArgs& args) override {
    check_storage("attention", {&args.q, &args.k, &args.v, &args.out, args.key_mask});
    if (!rehearsing()) reference::attention(args);
  }
  void rms_norm(const RmsNormArgs& args) override {
    check_storage("rms_norm", {&args.x, args.weight, &args.out});
    if (!rehearsing()) reference::rms_norm(args);
  }
  void layer_norm(const LayerNormArgs& args) override {
    check_storage("layer_norm", {&args.x, &args.out, args.weight, args.bias, args.scale, args.shift});
    if (!rehearsing()) reference::layer_norm(args);
  }
  void head_norm_rope(const HeadNormRopeArgs& args) override {
    check_storage("head_norm_rope", {&args.x, &args.out, args.weight, args.cos, args.sin});
    if (!rehearsing()) reference::head_norm_rope(args);
  }
  void add_gated(const AddGatedArgs& args) override {
    check_storage("add_gated", {&args.x, &args.gate, &args.y, &args.out});
    if (!rehearsing()) reference::add_gated(args);
  }
  void unary(const UnaryArgs& args) override {
    check_storage("unary", {&args.x, &args.out});
    if (!rehearsing()) reference::unary(args);
  }
  void binary(const BinaryArgs& args) override {
    check_storage("binary", {&args.a, &args.b, &args.out});
    if (!rehearsing()) reference::binary(args);
  }
  void conv2d(const Conv2dArgs& args) override {
    check_storage("conv2d", {&args.x, &args.weight.weight, &args.out, args.residual});
    if (!rehearsing()) reference::conv2d(args);
  }
  void channel_norm(const ChannelNormArgs& args) override {
    check_storage("channel_norm", {&args.x, &args.gamma, &args.out});
    if (!rehearsing()) reference::channel_norm(args);
  }
  void gather(const GatherArgs& args) override {
    check_storage("gather", {&args.table, &args.ids, &args.out});
    if (!rehearsing()) reference::gather(args);
  }
  void guidance(const GuidanceArgs& args) override {
    check_storage("guidance", {&args.cond, &args.uncond, &args.out});
    if (!rehearsing()) reference::guidance(args);
  }
  void euler_step(const EulerStepArgs& args) override { euler_step_on_host(args); }
  void denormalize(const DenormalizeArgs& args) override { denormalize_on_host(args); }
  void pixels(const PixelsArgs& args) override { pixels_on_host(args); }
  void copy(const CopyArgs& args) override {
    check_storage("copy", {&args.from, &args.to});
    reference::copy(args);
  }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace lockstep
