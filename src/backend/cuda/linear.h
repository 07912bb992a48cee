// Linear layers on the device: dense or MLX-quantised weights, with what follows them fused where the library can.
#pragma once
#include "backend/cuda/device.h"
#include "backend/kernels.h"

namespace lockstep::cuda {

// A weight on the device, in the dtype of the activations it will meet.
struct DeviceLinear {
  Tensor weight;          // [N, K], or u32 [N, K * bits / 32]
  Tensor bias;            // [N] or undefined
  Tensor scales, biases;  // quantised only
};

class Linear {
 public:
  explicit Linear(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  void prepare(LinearWeight& weight, DType activations) const;
  void run(const LinearArgs& args) const;

  // x [rows, K] and w [N, K], both contiguous in their last axis: y = x w^T + bias, for the convolutions too.
  void product(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& out, bool gelu,
               const Tensor* residual) const;

 private:
  DeviceLinear on_device(const LinearWeight& weight, DType activations) const;
  Tensor cast(const Tensor& tensor, DType dtype) const;
  Tensor packed(const Tensor& tensor) const;
  bool try_product(const Tensor& x, const Tensor& w, const Tensor& bias, Tensor& out, bool gelu,
                   const Tensor* residual) const;
  void quantised(const Tensor& x, const LinearWeight& form, const DeviceLinear& weight, const Tensor& bias, Tensor& out,
                 bool gelu, const Tensor* residual) const;

  std::shared_ptr<Device> device_;
};

// [..., D] as [batch, rows, D] with one stride from row to row and one from batch to batch; false where it has more.
struct RowBatches {
  int64_t batch = 1, rows = 1, row_stride = 0, batch_stride = 0;
};
bool row_batches(const Tensor& tensor, RowBatches& found);

}  // namespace lockstep::cuda
