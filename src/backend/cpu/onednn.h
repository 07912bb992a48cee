// The one file pair that knows oneDNN: dense matrix products and convolutions over packed weights. Primitives are made
// on first use of a shape and kept; scratch memory comes from the tensor pool.
#pragma once
#include <oneapi/dnnl/dnnl.hpp>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "backend/kernels.h"

namespace lockstep::cpu {

struct PackedMatrix {  // [N, K], in the layout oneDNN chose
  int64_t n = 0, k = 0;
  DType dtype = DType::kF32;
  dnnl::memory memory;
  std::shared_ptr<std::byte> storage;
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

struct PackedFilter {   // [O, I, kh, kw]; one packed form per layout that a geometry asks for
  Tensor weight, bias;  // weight in the dtype of the computation, bias in f32
  mutable std::mutex mutex;
  mutable std::vector<std::pair<dnnl::memory, std::shared_ptr<std::byte>>> packed;
};

class OneDnn {
 public:
  explicit OneDnn(int threads);

  std::shared_ptr<const PackedMatrix> pack(const Tensor& weight, DType dtype);
  void multiply(const MatrixProduct& product);
  // x, out and residual have the filter's dtype.
  void convolve(const Conv2dArgs& args, const PackedFilter& filter);

 private:
  using Key = std::array<int64_t, 16>;
  struct Prepared {
    dnnl::primitive primitive;
    std::vector<dnnl::memory::desc> arguments;  // in the order of the caller
    size_t scratch_bytes = 0;
    dnnl::memory::desc scratch;
  };

  int threads_for(int64_t products) const;
  void execute(const dnnl::primitive& primitive, const std::unordered_map<int, dnnl::memory>& arguments);
  dnnl::memory::desc product_weight(int64_t rows, int64_t n, int64_t k, DType dtype);
  // A primitive is made for one thread count, the current one.
  const Prepared& product(const MatrixProduct& p, int threads);
  const Prepared& convolution(const Conv2dArgs& args, const PackedFilter& filter, int threads);
  const dnnl::memory& packed(const PackedFilter& filter, const dnnl::memory::desc& wanted);

  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Prepared>> prepared_;
};

}  // namespace lockstep::cpu
