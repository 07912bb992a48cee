// Storages as arrays of MLX: a tensor's view of one becomes an array, and a result becomes the storage's next value.
#pragma once
#include <mlx/mlx.h>

#include <optional>
#include <vector>

#include "backend/mlx/leaf.h"
#include "tensor/dtype.h"

namespace lockstep::mlx {

namespace mx = ::mlx::core;

struct Slot {
  size_t bytes = 0;
  std::optional<mx::array> value;  // all of it in row-major order, of any shape and dtype; absent: not written yet
  size_t dirty_at = 0;             // its place in the list of those to flush, counted from 1
};

// The element type that holds a dtype's bits: f64 and the eight-bit floats travel as whole numbers.
mx::Dtype type_of(int dtype);
bool computes(int dtype);  // f32, bf16 or f16
bool on_gpu();

mx::array read(const View& view);
std::optional<mx::array> read(const View* view);
// `value` has the view's elements; its dtype becomes the view's.
void write(const View& view, mx::array value);
void replace(Slot& slot, mx::array value);

mx::Shape shape_of(const View& view);
inline mx::array f32(const mx::array& array) {
  return mx::astype(array, mx::float32);
}

// Elementwise work in f32 whose result has one dtype, as one kernel where MLX fuses without a C compiler: on a GPU.
using Chain = std::vector<mx::array> (*)(const std::vector<mx::array>&);
mx::array fused(Chain chain, mx::Dtype result, const std::vector<mx::array>& inputs);

}  // namespace lockstep::mlx
