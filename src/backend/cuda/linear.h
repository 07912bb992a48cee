// Linear layers on the device: dense or MLX-quantised weights, with what follows them fused where the library can.
#pragma once
#include <array>

#include "backend/cuda/device.h"
#include "backend/cuda/weight_stream.h"
#include "backend/kernels.h"

namespace lockstep::cuda {

// A weight on the device, in the dtype of the activations it will meet.
struct DeviceLinear {
  Tensor weight;                     // [N, K], e4m3 for fp8, or u32 [N, K * bits / 32]
  Tensor bias;                       // [N] or undefined
  Tensor scales, biases;             // quantised: [N, K / group]; fp8: f32 [N] and none
  std::shared_ptr<const void> room;  // of a weight that stays on the device
  WeightStream::Handle travelling;   // of one that does not, whose `weight` is undefined
};

// Rows in e4m3, and what each was divided by.
struct Fp8Rows {
  Tensor rows;    // [..., K]
  Tensor scales;  // f32 [rows]
};

class Linear {
 public:
  explicit Linear(std::shared_ptr<Device> device) : device_(std::move(device)), stream_(device_) {}
  WeightStream& stream() const { return stream_; }
  void prepare(LinearWeight& weight, DType activations) const;
  void run(const LinearArgs& args) const;

  // Where a kernel that makes rows for a product in fp8 may put them a second time, in e4m3; undefined while no weight
  // is in fp8. Once the kernel is on the queue, remember() keeps them for the products of `x`.
  Fp8Rows room_for_fp8(const Tensor& x) const;
  void remember(const Tensor& x, Fp8Rows rows) const;

  // x [rows, K] and w [N, K], both contiguous in their last axis: y = x w^T + bias, for the convolutions too.
  void product(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& out, bool gelu,
               const Tensor* residual) const;

 private:
  DeviceLinear on_device(const LinearWeight& weight, DType activations) const;
  Tensor cast(const Tensor& tensor, DType dtype) const;
  Tensor packed(const Tensor& tensor) const;
  bool try_product(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& out, bool gelu, const Tensor* residual,
                   const Tensor* x_scales = nullptr, const Tensor* w_scales = nullptr) const;
  Fp8Rows to_fp8(const Tensor& x) const;
  const Fp8Rows& rows_in_fp8(const Tensor& x) const;
  void fp8(const Tensor& x, const DeviceLinear& weight, const Tensor& bias, Tensor& out, bool gelu,
           const Tensor* residual) const;
  void quantised(const Tensor& x, const LinearWeight& form, const DeviceLinear& weight, const Tensor& bias, Tensor& out,
                 bool gelu, const Tensor* residual) const;

  std::shared_ptr<Device> device_;
  mutable WeightStream stream_;
  // Queries, keys and values are made from the same rows, image and text in turn: those of the last products, while
  // they are what they were.
  struct Last {
    std::weak_ptr<Storage> storage;
    uint64_t version = 0;
    int64_t offset = 0;
    Shape shape;
    Fp8Rows made;
  };
  mutable std::array<Last, 2> last_;
  mutable size_t next_last_ = 0;
  mutable bool multiplies_fp8_ = false;  // some weight is in fp8
};

// [..., D] as [batch, rows, D] with one stride from row to row and one from batch to batch; false where it has more.
struct RowBatches {
  int64_t batch = 1, rows = 1, row_stride = 0, batch_stride = 0;
};
bool row_batches(const Tensor& tensor, RowBatches& found);

}  // namespace lockstep::cuda
