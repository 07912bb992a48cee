#include "backend/reference/reference_backend.h"

#include "backend/reference/kernels.h"

namespace lockstep {
namespace {

class ReferenceBackend final : public Backend {
 public:
  std::string description() const override { return "reference, f64 accumulation, 1 thread"; }
  bool prepare(LinearWeight&, DType) override { return false; }
  bool prepare(ConvWeight&, DType) override { return false; }
  void linear(const LinearArgs& args) override { reference::linear(args); }
  void attention(const AttentionArgs& args) override { reference::attention(args); }
  void rms_norm(const RmsNormArgs& args) override { reference::rms_norm(args); }
  void layer_norm(const LayerNormArgs& args) override { reference::layer_norm(args); }
  void head_norm_rope(const HeadNormRopeArgs& args) override { reference::head_norm_rope(args); }
  void add_gated(const AddGatedArgs& args) override { reference::add_gated(args); }
  void unary(const UnaryArgs& args) override { reference::unary(args); }
  void binary(const BinaryArgs& args) override { reference::binary(args); }
  void conv2d(const Conv2dArgs& args) override { reference::conv2d(args); }
  void channel_norm(const ChannelNormArgs& args) override { reference::channel_norm(args); }
  void upsample2x(const Upsample2xArgs& args) override { reference::upsample2x(args); }
  void gather(const GatherArgs& args) override { reference::gather(args); }
  void softmax(const SoftmaxArgs& args) override { reference::softmax(args); }
  void guidance(const GuidanceArgs& args) override { reference::guidance(args); }
  void copy(const CopyArgs& args) override { reference::copy(args); }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace lockstep
