// Element by element: arithmetic with broadcasting, copies between layouts and dtypes, the sampling loop's arithmetic.
#include <cstring>

#include "backend/cuda/leaf/device.cuh"
#include "backend/cuda/leaf/kernels.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kBlock = 256;

int64_t blocks_for(int64_t count) {
  return (count + kBlock - 1) / kBlock;
}

__device__ __forceinline__ int64_t index_of_thread() {
  return static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
}

int64_t elements(const View& view) {
  int64_t count = 1;
  for (int axis = 0; axis < view.rank; ++axis) count *= view.shape[axis];
  return count;
}

bool packed(const View& view) {
  int64_t step = 1;
  for (int axis = view.rank; axis-- > 0;) {
    if (view.shape[axis] == 1) continue;
    if (view.strides[axis] != step) return false;
    step *= view.shape[axis];
  }
  return true;
}

// Up to three operands over the output's axes, merged where all of them allow.
struct Walk {
  int axes = 0;
  int64_t size[kMostAxes], stride[3][kMostAxes];

  __device__ __forceinline__ void offsets(int64_t i, int64_t (&at)[3]) const {
    at[0] = at[1] = at[2] = 0;
#pragma unroll
    for (int axis = kMostAxes - 1; axis >= 0; --axis) {
      if (axis >= axes) continue;
      const int64_t index = i % size[axis];
      i /= size[axis];
      at[0] += index * stride[0][axis];
      at[1] += index * stride[1][axis];
      at[2] += index * stride[2][axis];
    }
  }
};

Walk walk_of(const View& a, const View& b, const View& c) {
  Walk walk;
  for (int axis = 0; axis < a.rank; ++axis) {
    if (a.shape[axis] == 1) continue;
    const int64_t size = a.shape[axis], steps[3] = {a.strides[axis], b.strides[axis], c.strides[axis]};
    bool merges = walk.axes > 0;
    for (int k = 0; k < 3 && merges; ++k) merges = walk.stride[k][walk.axes - 1] == steps[k] * size;
    if (!merges) {
      walk.size[walk.axes] = 1;
      ++walk.axes;
    }
    walk.size[walk.axes - 1] *= size;
    for (int k = 0; k < 3; ++k) walk.stride[k][walk.axes - 1] = steps[k];
  }
  return walk;
}

__device__ __forceinline__ float apply_unary(int op, float x) {
  switch (op) {
    case 0:
      return silu(x);
    case 1:
      return gelu_tanh(x);
    case 2:
      return gelu_erf(x);
    case 3:
      return -x;
    case 4:
      return cosf(x);
    case 5:
      return sinf(x);
    case 6:
      return expf(x);
    default:
      return isnan(x) ? x : fminf(fmaxf(x, -1.0f), 1.0f);
  }
}

__device__ __forceinline__ float apply_binary(int op, float a, float b) {
  switch (op) {
    case 0:
      return a + b;
    case 1:
      return a - b;
    case 2:
      return a * b;
    case 3:
      return a / b;
    default:
      return silu(a) * b;
  }
}

template <typename T>
__global__ void unary_elements(int op, const T* x, T* out, Walk walk, int64_t count) {
  const int64_t i = index_of_thread();
  if (i >= count) return;
  int64_t at[3];
  walk.offsets(i, at);
  out[at[0]] = narrow<T>(apply_unary(op, widen(x[at[1]])));
}

template <typename T>
__global__ void unary_eights(int op, const Eight<T>* x, Eight<T>* out, int64_t count) {
  const int64_t i = index_of_thread();
  if (i >= count) return;
  const Eight<T> from = x[i];
  Eight<T> to;
#pragma unroll
  for (int j = 0; j < 8; ++j) to.v[j] = narrow<T>(apply_unary(op, widen(from.v[j])));
  out[i] = to;
}

template <typename T>
__global__ void binary_elements(int op, const T* a, const T* b, T* out, Walk walk, int64_t count) {
  const int64_t i = index_of_thread();
  if (i >= count) return;
  int64_t at[3];
  walk.offsets(i, at);
  out[at[0]] = narrow<T>(apply_binary(op, widen(a[at[1]]), widen(b[at[2]])));
}

template <typename T>
__global__ void binary_eights(int op, const Eight<T>* a, const Eight<T>* b, Eight<T>* out, int64_t count) {
  const int64_t i = index_of_thread();
  if (i >= count) return;
  const Eight<T> x = a[i], y = b[i];
  Eight<T> z;
#pragma unroll
  for (int j = 0; j < 8; ++j) z.v[j] = narrow<T>(apply_binary(op, widen(x.v[j]), widen(y.v[j])));
  out[i] = z;
}

template <typename From, typename To>
__global__ void copy_elements(const From* from, To* to, Walk walk, int64_t count) {
  const int64_t i = index_of_thread();
  if (i >= count) return;
  int64_t at[3];
  walk.offsets(i, at);
  if constexpr (sizeof(From) == sizeof(To) && std::is_same_v<From, To>)
    to[at[0]] = from[at[1]];
  else
    to[at[0]] = narrow<To>(widen(from[at[1]]));
}

// to[r, c] = from[c, r], each contiguous in its last axis: a tile goes through shared memory, so that both sides are
// reached in whole lines.
constexpr int kTile = 32, kTileRows = 8;
template <typename T>
__global__ void __launch_bounds__(kTile* kTileRows)
    turn_tiles(const T* from, T* to, int64_t rows, int64_t columns, int64_t from_step, int64_t to_step) {
  __shared__ T tile[kTile][kTile + 1];
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile,
                first_column = static_cast<int64_t>(blockIdx.x) * kTile;
  const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
#pragma unroll
  for (int i = y; i < kTile; i += kTileRows)
    if (first_row + x < rows && first_column + i < columns)
      tile[i][x] = from[(first_column + i) * from_step + first_row + x];
  __syncthreads();
#pragma unroll
  for (int i = y; i < kTile; i += kTileRows)
    if (first_row + i < rows && first_column + x < columns)
      to[(first_row + i) * to_step + first_column + x] = tile[x][i];
}

// Rows of a gated residual, eight elements a thread: out = residual + gate * activation(y) * multiply.
struct EpilogueTask {
  RowMap y, out, multiply, residual, gate;  // base null where left out; gate has a row a batch
  int activation;
  int64_t rows_per_batch, units;
};

__device__ __forceinline__ float activated(int activation, float x) {
  if (activation == 1) return gelu_tanh(x);
  if (activation == 2) return gelu_erf(x);
  if (activation == 3) return silu(x);
  return x;
}

constexpr int kRowThreads = 128;

// A block a row.
template <typename T, typename Y, int kUnit>
__global__ void __launch_bounds__(kRowThreads) epilogue_rows(EpilogueTask task) {
  const int64_t row = blockIdx.x;
  const Y* y = task.y.at<Y>(row);
  const T* multiply = task.multiply.base ? task.multiply.at<T>(row) : nullptr;
  const T* residual = task.residual.base ? task.residual.at<T>(row) : nullptr;
  const T* gate = task.gate.base ? task.gate.at<T>(row / task.rows_per_batch) : nullptr;
  T* out = task.out.at<T>(row);
  for (int unit = threadIdx.x; unit < static_cast<int>(task.units); unit += kRowThreads) {
    float v[kUnit];
    if constexpr (kUnit == 8) {
      const Eight<Y> eight = reinterpret_cast<const Eight<Y>*>(y)[unit];
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = activated(task.activation, widen(eight.v[j]));
    } else {
      v[0] = activated(task.activation, widen(y[unit]));
    }
    const auto each = [&](const T* from, auto&& function) {
      if constexpr (kUnit == 8) {
        const Eight<T> eight = reinterpret_cast<const Eight<T>*>(from)[unit];
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = function(v[j], widen(eight.v[j]));
      } else {
        v[0] = function(v[0], widen(from[unit]));
      }
    };
    if (multiply) each(multiply, [](float a, float b) { return a * b; });
    if (gate) each(gate, [](float a, float b) { return a * b; });
    if (residual) each(residual, [](float a, float b) { return a + b; });
    if constexpr (kUnit == 8) {
      Eight<T> z;
#pragma unroll
      for (int j = 0; j < 8; ++j) z.v[j] = narrow<T>(v[j]);
      reinterpret_cast<Eight<T>*>(out)[unit] = z;
    } else {
      out[unit] = narrow<T>(v[0]);
    }
  }
}

template <typename T>
__global__ void gather_rows(RowMap table, const int64_t* ids, RowMap out) {
  const int64_t i = index_of_thread();
  if (i >= out.count * out.columns) return;
  const int64_t row = i / out.columns, column = i % out.columns;
  out.at<T>(row)[column] = table.at<T>(ids[row])[column];
}

template <typename T>
__global__ void euler_elements(const T* x, const T* v, T* out, float dt, int64_t count) {
  const int64_t i = index_of_thread();
  if (i < count) out[i] = narrow<T>(__fadd_rn(widen(x[i]), widen(narrow<T>(__fmul_rn(dt, widen(v[i]))))));
}

template <typename T>
__global__ void denormalize_elements(const T* x, const float* inverse_std, const float* mean, T* out, int64_t channels,
                                     int64_t inner, int64_t count) {
  const int64_t i = index_of_thread();
  if (i >= count) return;
  const int64_t c = i / inner % channels;
  out[i] = narrow<T>(__fadd_rn(widen(narrow<T>(__fdiv_rn(widen(x[i]), inverse_std[c]))), mean[c]));
}

template <typename T>
__global__ void pixel_elements(const T* x, uint8_t* out, int64_t count) {
  const int64_t i = index_of_thread();
  if (i >= count) return;
  const float half = widen(narrow<T>(__fmul_rn(widen(x[i]), 0.5f)));
  float unit = widen(narrow<T>(__fadd_rn(half, 0.5f)));
  unit = isnan(unit) ? 0.0f : fminf(fmaxf(unit, 0.0f), 1.0f);
  out[i] = static_cast<uint8_t>(rintf(__fmul_rn(unit, 255.0f)));
}

bool sixteen(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

}  // namespace

Outcome unary(int op, const View* x, View* out, Stream stream) {
  const int64_t count = elements(*out);
  if (count == 0) return Outcome::kDone;
  const Walk walk = walk_of(*out, *x, *x);
  const auto s = static_cast<cudaStream_t>(stream);
  const bool flat = packed(*x) && packed(*out) && elements(*x) == count && x->dtype == out->dtype && count % 8 == 0 &&
                    sixteen(x->data) && sixteen(out->data);
  return for_float(x->dtype, "unary of this dtype", [&]<typename T>(T) {
    if (flat)
      unary_eights<T><<<blocks_for(count / 8), kBlock, 0, s>>>(op, static_cast<const Eight<T>*>(x->data),
                                                               static_cast<Eight<T>*>(out->data), count / 8);
    else
      unary_elements<T><<<blocks_for(count), kBlock, 0, s>>>(op, static_cast<const T*>(x->data),
                                                             static_cast<T*>(out->data), walk, count);
    return launched("unary");
  });
}

Outcome binary(int op, const View* a, const View* b, View* out, Stream stream) {
  const int64_t count = elements(*out);
  if (count == 0) return Outcome::kDone;
  const Walk walk = walk_of(*out, *a, *b);
  const auto s = static_cast<cudaStream_t>(stream);
  const bool flat = packed(*a) && packed(*b) && packed(*out) && elements(*a) == count && elements(*b) == count &&
                    count % 8 == 0 && sixteen(a->data) && sixteen(b->data) && sixteen(out->data);
  return for_float(out->dtype, "binary of this dtype", [&]<typename T>(T) {
    if (flat)
      binary_eights<T><<<blocks_for(count / 8), kBlock, 0, s>>>(op, static_cast<const Eight<T>*>(a->data),
                                                                static_cast<const Eight<T>*>(b->data),
                                                                static_cast<Eight<T>*>(out->data), count / 8);
    else
      binary_elements<T><<<blocks_for(count), kBlock, 0, s>>>(
          op, static_cast<const T*>(a->data), static_cast<const T*>(b->data), static_cast<T*>(out->data), walk, count);
    return launched("binary");
  });
}

Outcome copy_view(const View* from, View* to, Stream stream) {
  const int64_t count = elements(*to);
  if (count == 0) return Outcome::kDone;
  const auto s = static_cast<cudaStream_t>(stream);
  if (from->dtype == to->dtype) {
    const int64_t item = bytes_of(to->dtype);
    if (packed(*from) && packed(*to))
      return checked(
          cudaMemcpyAsync(to->data, from->data, static_cast<size_t>(count * item), cudaMemcpyDeviceToDevice, s),
          "copy");
    const auto go = [&]<typename T>(T, const Walk& walk, int64_t n) {
      const int64_t tiles_down = (walk.size[0] + kTile - 1) / kTile;
      if (walk.axes == 2 && walk.stride[0][1] == 1 && walk.stride[1][0] == 1 && walk.stride[1][1] > 1 &&
          tiles_down < 65536 && sizeof(T) <= 8) {
        turn_tiles<T>
            <<<dim3(static_cast<unsigned>((walk.size[1] + kTile - 1) / kTile), static_cast<unsigned>(tiles_down)),
               kTile * kTileRows, 0, s>>>(static_cast<const T*>(from->data), static_cast<T*>(to->data), walk.size[0],
                                          walk.size[1], walk.stride[1][1], walk.stride[0][0]);
        return launched("copy");
      }
      copy_elements<T, T>
          <<<blocks_for(n), kBlock, 0, s>>>(static_cast<const T*>(from->data), static_cast<T*>(to->data), walk, n);
      return launched("copy");
    };
    // Rows of whole 16-byte units travel as such.
    View wide_from = *from, wide_to = *to;
    const int last = to->rank - 1;
    const int64_t unit = 16 / item;
    bool wide = last >= 0 && unit_columns(*from) && unit_columns(*to) && to->shape[last] % unit == 0 &&
                sixteen(from->data) && sixteen(to->data);
    for (int axis = 0; axis < last && wide; ++axis)
      wide = to->shape[axis] == 1 || (from->strides[axis] % unit == 0 && to->strides[axis] % unit == 0);
    if (wide) {
      wide_from.shape[last] = wide_to.shape[last] = to->shape[last] / unit;
      for (int axis = 0; axis < last; ++axis) {
        wide_from.strides[axis] /= unit;
        wide_to.strides[axis] /= unit;
      }
      return go(uint4{}, walk_of(wide_to, wide_from, wide_from), count / unit);
    }
    const Walk walk = walk_of(*to, *from, *from);
    switch (item) {
      case 1:
        return go(uint8_t{}, walk, count);
      case 2:
        return go(uint16_t{}, walk, count);
      case 4:
        return go(uint32_t{}, walk, count);
      default:
        return go(uint64_t{}, walk, count);
    }
  }
  const Walk walk = walk_of(*to, *from, *from);
  return for_float(from->dtype, "copy of this dtype", [&]<typename From>(From) {
    return for_float(to->dtype, "copy to this dtype", [&]<typename To>(To) {
      copy_elements<From, To><<<blocks_for(count), kBlock, 0, s>>>(static_cast<const From*>(from->data),
                                                                   static_cast<To*>(to->data), walk, count);
      return launched("copy");
    });
  });
}

Outcome epilogue(const View* y, View* out, int activation, const View* multiply, const View* residual, const View* gate,
                 int64_t rows_per_batch, Stream stream) {
  EpilogueTask task{};
  task.y = rows_of(*y);
  task.out = rows_of(*out);
  if (task.y.count == 0 || task.y.columns == 0) return Outcome::kDone;
  bool wide = wide_rows(task.y, y->dtype) && wide_rows(task.out, out->dtype);
  for (const auto& [view, map] :
       {std::pair{multiply, &task.multiply}, {residual, &task.residual}, {gate, &task.gate}}) {
    if (!view) continue;
    *map = rows_of(*view);
    wide = wide && wide_rows(*map, view->dtype);
  }
  task.activation = activation;
  task.rows_per_batch = rows_per_batch;
  task.units = wide ? task.y.columns / 8 : task.y.columns;
  const auto s = static_cast<cudaStream_t>(stream);
  const int64_t blocks = task.y.count;
  return for_float(out->dtype, "epilogue of this dtype", [&]<typename T>(T) {
    if (y->dtype == kF32 && out->dtype != kF32) {
      if (wide)
        epilogue_rows<T, float, 8><<<blocks, kRowThreads, 0, s>>>(task);
      else
        epilogue_rows<T, float, 1><<<blocks, kRowThreads, 0, s>>>(task);
    } else if (wide) {
      epilogue_rows<T, T, 8><<<blocks, kRowThreads, 0, s>>>(task);
    } else {
      epilogue_rows<T, T, 1><<<blocks, kRowThreads, 0, s>>>(task);
    }
    return launched("epilogue");
  });
}

Outcome add_gated(const View* x, const View* gate, const View* y, View* out, Stream stream) {
  return epilogue(y, out, 0, nullptr, x, gate, x->shape[1] > 0 ? x->shape[1] : 1, stream);
}

Outcome gather(const View* table, const int64_t* ids, View* out, Stream stream) {
  const RowMap from = rows_of(*table), to = rows_of(*out);
  if (to.count * to.columns == 0) return Outcome::kDone;
  const auto s = static_cast<cudaStream_t>(stream);
  if (bytes_of(table->dtype) == 2)
    gather_rows<uint16_t><<<blocks_for(to.count * to.columns), kBlock, 0, s>>>(from, ids, to);
  else if (bytes_of(table->dtype) == 4)
    gather_rows<uint32_t><<<blocks_for(to.count * to.columns), kBlock, 0, s>>>(from, ids, to);
  else
    return unsupported("gather of this dtype");
  return launched("gather");
}

Outcome euler_step(const View* x, const View* velocity, View* out, float dt, Stream stream) {
  const int64_t count = elements(*out);
  if (count == 0) return Outcome::kDone;
  return for_float(out->dtype, "euler_step of this dtype", [&]<typename T>(T) {
    euler_elements<T><<<blocks_for(count), kBlock, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(x->data), static_cast<const T*>(velocity->data), static_cast<T*>(out->data), dt, count);
    return launched("euler_step");
  });
}

Outcome denormalize(const View* x, const float* inverse_std, const float* mean, View* out, int64_t channels,
                    int64_t inner, Stream stream) {
  const int64_t count = elements(*out);
  if (count == 0) return Outcome::kDone;
  return for_float(out->dtype, "denormalize of this dtype", [&]<typename T>(T) {
    denormalize_elements<T><<<blocks_for(count), kBlock, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(x->data), inverse_std, mean, static_cast<T*>(out->data), channels, inner, count);
    return launched("denormalize");
  });
}

Outcome pixels(const View* x, View* out, Stream stream) {
  const int64_t count = elements(*out);
  if (count == 0) return Outcome::kDone;
  return for_float(x->dtype, "pixels of this dtype", [&]<typename T>(T) {
    pixel_elements<T><<<blocks_for(count), kBlock, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(x->data), static_cast<uint8_t*>(out->data), count);
    return launched("pixels");
  });
}

}  // namespace lockstep::cuda
