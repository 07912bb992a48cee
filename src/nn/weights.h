// Scoped look-up of a checkpoint's tensors with full accounts: every key the model asks for and every key the file
// holds is settled, and finish() refuses the load with the whole list when they differ.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "io/checkpoint.h"

namespace lockstep::nn {

// Called as tensors are taken: bytes done with, bytes in the files.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

// How dense linear weights are held: as in the file, in so many bits as MLX quantises, or in e4m3 by a backend that
// multiplies in it.
struct LinearFormat {
  int bits = 0;
  bool fp8 = false;
};

struct WeightOptions {
  DType dtype = DType::kF32;  // of activations; weights are brought to it where their own is wider
  LinearFormat linears = {};  // brought about at load
  // The name a canonical key has in this file; empty: unchanged.
  std::function<std::string(const std::string&)> rename = {};
  std::vector<std::string> may_lack = {};   // canonical keys that this kind of file leaves out
  bool channels_last_convolutions = false;  // MLX keeps [o, (kt,) kh, kw, i]
  LoadProgress progress = {};
};

class Weights {
 public:
  Weights(const Checkpoint& checkpoint, Backend& backend, WeightOptions options);

  Weights operator/(std::string_view name) const;
  Weights at(std::string_view list, int index) const;

  DType dtype() const;
  bool has(std::string_view name) const;
  Tensor tensor(std::string_view name, const Shape& shape) const;
  Tensor stored(std::string_view name,
                const Shape& shape) const;  // in the file's own dtype: tables that are only gathered from
  Tensor flat(std::string_view name,
              int64_t numel) const;  // any shape of that many elements, as [numel]: gamma [C, 1, 1, 1]
  LinearWeight linear(std::string_view name, int64_t inputs, int64_t outputs, bool bias = true) const;
  // A convolution whose kernel is as large as its stride, over patches that were cut out before: [O, I, kt, kh, kw] as
  // a linear weight [O, I * kt * kh * kw] without bias.
  LinearWeight convolution_of_patches(std::string_view name, int64_t inputs, int64_t outputs) const;
  ConvWeight conv2d(std::string_view name, int64_t inputs, int64_t outputs, int kernel) const;
  // A 3x3 convolution (one pixel of padding) of a picture that was doubled by repeating pixels reads each of its own
  // pixels up to four times. By the parity (row, column) of the result it is four 2x2 convolutions of the picture
  // itself, whose weights are sums of the nine, summed exactly and rounded once: 4/9 of the products. In order (0,0)
  // (0,1) (1,0) (1,1), [O, I, 2, 2] each.
  std::array<ConvWeight, 4> conv2d_of_doubled(std::string_view name, int64_t inputs, int64_t outputs) const;
  // A causal 3-D convolution as a single image sees it: only the newest temporal tap meets data, the others multiply
  // zeros.
  ConvWeight conv3d_newest_tap(std::string_view name, int64_t inputs, int64_t outputs, int kernel) const;

  void ignore(std::string_view glob) const;  // keys that belong to the file but not to this work
  void finish(std::string_view component) const;

 private:
  struct Account;
  Weights(std::shared_ptr<Account> account, std::string prefix)
      : account_(std::move(account)), prefix_(std::move(prefix)) {}
  std::string key(std::string_view name) const;
  Tensor take(std::string_view name) const;  // undefined when missing, which is noted
  void drop(const Weights& scope, std::string_view name) const;
  Tensor in_dtype(Tensor tensor) const;
  Tensor conv2d_kernel(
      std::string_view name) const;  // [O, I, kh, kw], whatever the file's order; undefined when missing
  ConvWeight conv(Tensor weight, std::string_view name, const Shape& shape, int64_t outputs) const;

  std::shared_ptr<Account> account_;
  std::string prefix_;
};

}  // namespace lockstep::nn
