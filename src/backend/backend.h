// What computes. Models call ops, ops call this, and only this knows the machine.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "backend/kernels.h"

namespace lockstep {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string description() const = 0;  // "cpu, AVX512-BF16, 2 threads"

  // Called once per weight at load: a backend may pack it for its kernels. `activations` is the dtype of x it will
  // meet. True: for such x the kernels read the packed form alone from now on.
  virtual bool prepare(LinearWeight& weight, DType activations) = 0;
  virtual bool prepare(ConvWeight& weight, DType activations) = 0;

  virtual void linear(const LinearArgs& args) = 0;
  virtual void attention(const AttentionArgs& args) = 0;
  virtual void rms_norm(const RmsNormArgs& args) = 0;
  virtual void layer_norm(const LayerNormArgs& args) = 0;
  virtual void head_norm_rope(const HeadNormRopeArgs& args) = 0;
  virtual void add_gated(const AddGatedArgs& args) = 0;
  virtual void unary(const UnaryArgs& args) = 0;
  virtual void binary(const BinaryArgs& args) = 0;
  virtual void conv2d(const Conv2dArgs& args) = 0;
  virtual void channel_norm(const ChannelNormArgs& args) = 0;
  virtual void upsample2x(const Upsample2xArgs& args) = 0;
  virtual void gather(const GatherArgs& args) = 0;
  virtual void softmax(const SoftmaxArgs& args) = 0;
  virtual void reduce(const ReduceArgs& args) = 0;
  virtual void guidance(const GuidanceArgs& args) = 0;
  virtual void copy(const CopyArgs& args) = 0;
};

// "reference" or "cpu". threads 0: all the machine offers to this process.
std::unique_ptr<Backend> make_backend(std::string_view name, int threads = 0);

}  // namespace lockstep
