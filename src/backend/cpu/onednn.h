// What oneDNN does for us: dense matrix products and convolutions over packed weights. Primitives are made on first use
// of a shape and kept; scratch memory comes from the tensor pool. onednn.cpp is the one file that knows the library;
// where a build goes without it, onednn_absent.cpp stands in its place and our own panels do the work.
#pragma once
#include <memory>
#include <mutex>
#include <string>

#include "backend/cpu/features.h"
#include "backend/kernels.h"

namespace lockstep::cpu {

struct PackedMatrix {  // [N, K], in the layout oneDNN chose
  virtual ~PackedMatrix() = default;
  int64_t n = 0, k = 0;
  DType dtype = DType::kF32;
};

struct MatrixProduct {  // out = x W^T + bias
  const void* x;
  int64_t rows, x_stride;  // strides in elements
  const PackedMatrix& weight;
  const float* bias;  // or null
  void* out;
  DType out_dtype;
  int64_t out_stride;
};

struct PackedFilter {   // [O, I, kh, kw]
  Tensor weight, bias;  // weight in the dtype of the computation, bias in f32
  mutable std::mutex mutex;
  mutable std::shared_ptr<void> packed;  // of whoever convolves with it
};

class OneDnn {
 public:
  explicit OneDnn(int threads);
  ~OneDnn();

  static bool is_there();  // false: nothing below may be called
  static std::string version();
  static void limit(Level level);  // before the first product

  std::shared_ptr<const PackedMatrix> pack(const Tensor& weight, DType dtype);
  void multiply(const MatrixProduct& product);
  // x, out and residual have the filter's dtype.
  void convolve(const Conv2dArgs& args, const PackedFilter& filter);

 private:
  struct Primitives;
  std::unique_ptr<Primitives> primitives_;
};

}  // namespace lockstep::cpu
