#include "backend/kernels.h"
#include "backend/mlx/leaf/kernels.h"

namespace lockstep::mlx {
namespace {

using Arrays = std::vector<mx::array>;

// act(y) [* multiply] [residual + [gate *]]: a chain of its own for each that occurs, so that each can be fused.
template <int kActivation, bool kMultiply, bool kResidual, bool kGate>
Arrays epilogue(const Arrays& in) {
  size_t next = 1;
  mx::array y = f32(in[0]);
  if constexpr (kActivation == static_cast<int>(Activation::kGeluTanh)) y = gelu_tanh(y);
  if constexpr (kActivation == static_cast<int>(Activation::kGeluErf)) y = gelu_erf(y);
  if constexpr (kActivation == static_cast<int>(Activation::kSilu)) y = silu(y);
  if constexpr (kMultiply) y = mx::multiply(y, f32(in[next++]));
  if constexpr (kGate) y = mx::multiply(y, f32(in[next++]));
  if constexpr (kResidual) y = mx::add(f32(in[next++]), y);
  return {y};
}

template <int kActivation>
Chain epilogue_for(bool multiply, bool residual, bool gate) {
  if (gate) return multiply ? epilogue<kActivation, true, true, true> : epilogue<kActivation, false, true, true>;
  if (residual) return multiply ? epilogue<kActivation, true, true, false> : epilogue<kActivation, false, true, false>;
  return multiply ? epilogue<kActivation, true, false, false> : epilogue<kActivation, false, false, false>;
}

Chain epilogue_for(Activation activation, bool multiply, bool residual, bool gate) {
  switch (activation) {
    case Activation::kNone:
      break;
    case Activation::kGeluTanh:
      return epilogue_for<static_cast<int>(Activation::kGeluTanh)>(multiply, residual, gate);
    case Activation::kGeluErf:
      return epilogue_for<static_cast<int>(Activation::kGeluErf)>(multiply, residual, gate);
    case Activation::kSilu:
      return epilogue_for<static_cast<int>(Activation::kSilu)>(multiply, residual, gate);
  }
  return epilogue_for<static_cast<int>(Activation::kNone)>(multiply, residual, gate);
}

mx::array product(const LinearTask& task) {
  const mx::array x = read(*task.x);
  const std::optional<mx::array> bias = read(task.bias);
  const mx::Dtype type = x.dtype();
  if (task.bits) {
    // MLX's CPU form multiplies quantised weights ten times faster in f32 than in the short floats.
    const mx::Dtype inner = on_gpu() ? type : mx::float32;
    const mx::array y =
        mx::quantized_matmul(mx::astype(x, inner), read(*task.weight), mx::astype(read(*task.scales), inner),
                             mx::astype(read(*task.biases), inner), true, task.group_size, task.bits);
    return bias ? mx::add(y, mx::astype(*bias, inner)) : y;
  }
  const mx::array weight = mx::transpose(mx::astype(read(*task.weight), type));  // [K, N]
  if (x.shape(-1) == 0) {
    mx::Shape shape = x.shape();
    shape.back() = weight.shape(1);
    return bias ? mx::broadcast_to(mx::astype(*bias, type), shape) : mx::zeros(shape, type);
  }
  return bias ? mx::addmm(mx::astype(*bias, type), x, weight) : mx::matmul(x, weight);
}

}  // namespace

void linear(const LinearTask& task) {
  const mx::array y = product(task);
  const auto activation = static_cast<Activation>(task.activation);
  if (activation == Activation::kNone && !task.multiply && !task.residual) return write(*task.out, y);
  Arrays inputs{y};
  if (task.multiply) inputs.push_back(read(*task.multiply));
  if (task.gate) inputs.push_back(for_rows(read(*task.gate), *task.out));
  if (task.residual) inputs.push_back(read(*task.residual));
  const Chain chain = epilogue_for(activation, task.multiply, task.residual, task.gate);
  write(*task.out, fused(chain, type_of(task.out->dtype), inputs));
}

void conv2d(const ConvTask& task) {
  // MLX's CPU form convolves in f32 and rounds before anything can be added; asked for f32 it leaves that to us.
  const mx::Dtype inner = on_gpu() ? type_of(task.x->dtype) : mx::float32;
  const mx::array x = mx::astype(read(*task.x), inner), filter = mx::astype(read(*task.filter), inner);
  mx::array y = mx::conv_general(x, filter, {task.stride, task.stride}, {task.pad_top, task.pad_left},
                                 {task.pad_bottom, task.pad_right}, {1, 1}, {1, 1});
  if (task.bias) y = mx::add(f32(y), f32(read(*task.bias)));
  if (task.residual) y = mx::add(f32(y), f32(read(*task.residual)));
  write(*task.out, y);
}

}  // namespace lockstep::mlx
