// What computes. Models call ops, ops call this, and only this knows the machine.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/kernels.h"
#include "tensor/storage.h"

namespace lockstep {

struct KernelTime {
  std::string name;
  int64_t calls = 0;
  double ms = 0;
};

// Work that is done again and again with inputs of the same shapes. A backend may record it once and replay it.
class Repeated {
 public:
  virtual ~Repeated() = default;
  // What comes back is the caller's until the next run.
  virtual Tensor run(const std::vector<Tensor>& inputs) = 0;
};

class Backend {
 public:
  using Body = std::function<Tensor(const std::vector<Tensor>& inputs)>;

  virtual ~Backend() = default;
  virtual std::string description() const = 0;  // "cpu, AVX512-BF16, 2 threads"

  // Memory. These defaults are those of a backend that computes in host memory.
  virtual Tensor allocate(DType dtype, const Shape& shape);  // uninitialised, where this backend computes
  virtual Tensor upload(const Tensor& tensor);  // where this backend can read it; itself when it can already
  virtual MemoryUse memory() const;             // of tensors where this backend computes
  virtual void reset_peak();
  // Of the linear weights that are loaded from now on, at most so many bytes are held where this backend computes; the
  // others travel there as they are used. False: it cannot.
  virtual bool hold_weights(uint64_t) { return false; }
  virtual uint64_t most_weight_bytes() const { return 0; }  // that were held at once
  virtual uint64_t available_bytes() const;  // that it could still take; the largest number where nobody knows

  // Time by kernel, of a backend that measures it: what ran between the two calls, in order of first use. Kernels then
  // run one after the other, so that the sum is what they take alone.
  virtual void start_profile() {}
  virtual std::vector<KernelTime> end_profile() { return {}; }

  // Kernels may be queued. flush() makes the queue start, synchronize() waits for it and reports what failed in it.
  virtual void flush() {}
  virtual void synchronize() {}

  // `body` may be called once for many runs: it must depend on nothing but its inputs and what never changes.
  virtual std::unique_ptr<Repeated> repeated(Body body);

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
  virtual void euler_step(const EulerStepArgs& args) = 0;
  virtual void denormalize(const DenormalizeArgs& args) = 0;
  virtual void pixels(const PixelsArgs& args) = 0;
  virtual void gather(const GatherArgs& args) = 0;
  virtual void guidance(const GuidanceArgs& args) = 0;
  virtual void copy(const CopyArgs& args) = 0;

  // What torch.randn draws on CUDA from a fresh generator with this seed. Of CUDA alone: it depends on the card.
  virtual void torch_cuda_normals(uint64_t seed, Tensor& out);
};

// "reference", "cpu", "cuda", "cuda:N" or "mlx". threads, for "cpu", 0: all the machine offers to this process.
std::unique_ptr<Backend> make_backend(std::string_view name, int threads = 0);

}  // namespace lockstep
