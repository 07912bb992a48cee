#include "tensor/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "tensor/convert_simd.h"

namespace lockstep {
namespace {

constexpr int64_t kChunk = 1 << 16;         // elements a thread takes at a time
constexpr int64_t kThreadedFrom = 1 << 19;  // fewer elements are done before other threads are awake
constexpr int64_t kBlock = 1024;            // f32 values between two small formats: stays in the first-level cache

bool is_small_float(DType dtype) {
  return is_floating(dtype) && dtype_bytes(dtype) < 4;
}

template <typename T>
constexpr bool kSmallFloat = std::is_same_v<T, BFloat16> || std::is_same_v<T, Half> || std::is_same_v<T, Float8E4M3> ||
                             std::is_same_v<T, Float8E5M2>;

template <typename T>
auto widen(T x) {
  if constexpr (kSmallFloat<T>)
    return float_from(x);
  else
    return x;
}

template <typename To, typename Wide>
To narrow(Wide x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != Wide{0};
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<Wide>) {
    if (std::isnan(x)) return To{0};
    if (x <= static_cast<Wide>(std::numeric_limits<To>::lowest())) return std::numeric_limits<To>::lowest();
    if (x >= static_cast<Wide>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <typename From, typename To>
void convert_run(const void* from, void* to, int64_t count) {
  const From* in = static_cast<const From*>(from);
  To* out = static_cast<To*>(to);
  for (int64_t i = 0; i < count; ++i) out[i] = narrow<To>(in[i]);
}

// Neither side a small float. A bool is read as the byte it is: foreign memory may hold more than 0 and 1.
void convert_wide(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count) {
  dispatch(from_dtype, [&]<typename From>(TypeTag<From>) {
    dispatch(to_dtype, [&]<typename To>(TypeTag<To>) {
      if constexpr (std::is_same_v<From, bool>) {
        const uint8_t* in = static_cast<const uint8_t*>(from);
        if constexpr (!kSmallFloat<To>)
          for (int64_t i = 0; i < count; ++i) static_cast<To*>(to)[i] = static_cast<To>(in[i] != 0);
      } else if constexpr (!kSmallFloat<From> && !kSmallFloat<To>) {
        convert_run<From, To>(from, to, count);
      }
    });
  });
}

void convert_chunk(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, int64_t count) {
  const bool widens = is_small_float(from_dtype), narrows = is_small_float(to_dtype);
  if (!widens && !narrows) return convert_wide(from, from_dtype, to, to_dtype, count);
  if (widens && to_dtype == DType::kF32) return widen_to_f32(from, from_dtype, reinterpret_cast<float*>(to), count);
  if (narrows && from_dtype == DType::kF32)
    return narrow_from_f32(reinterpret_cast<const float*>(from), to_dtype, to, count);
  // Through f32, which holds every small float exactly; 64-bit values round to f32 first, as in torch.
  float block[kBlock];
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t n = std::min(kBlock, count - i);
    const std::byte* in = from + i * static_cast<int64_t>(dtype_bytes(from_dtype));
    std::byte* out = to + i * static_cast<int64_t>(dtype_bytes(to_dtype));
    if (widens)
      widen_to_f32(in, from_dtype, block, n);
    else
      convert_wide(in, from_dtype, block, DType::kF32, n);
    if (narrows)
      narrow_from_f32(block, to_dtype, out, n);
    else
      convert_wide(block, DType::kF32, out, to_dtype, n);
  }
}

}  // namespace

void convert_elements(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count) {
  if (count <= 0) return;
  const std::byte* in = static_cast<const std::byte*>(from);
  std::byte* out = static_cast<std::byte*>(to);
  const int64_t from_bytes = static_cast<int64_t>(dtype_bytes(from_dtype)),
                to_bytes = static_cast<int64_t>(dtype_bytes(to_dtype));
#pragma omp parallel for schedule(static) if (count >= kThreadedFrom)
  for (int64_t i = 0; i < count; i += kChunk) {
    const int64_t n = std::min(kChunk, count - i);
    if (from_dtype == to_dtype)
      std::memcpy(out + i * to_bytes, in + i * from_bytes, static_cast<size_t>(n * from_bytes));
    else
      convert_chunk(in + i * from_bytes, from_dtype, out + i * to_bytes, to_dtype, n);
  }
}

double element_as_double(const std::byte* at, DType dtype) {
  if (dtype == DType::kBool) return *at == std::byte{0} ? 0.0 : 1.0;
  return dispatch(dtype, [&]<typename T>(TypeTag<T>) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return static_cast<double>(widen(value));
  });
}

std::vector<float> to_floats(const Tensor& tensor) {
  const Tensor packed = tensor.contiguous();
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  convert_elements(packed.strided_data(), packed.dtype(), values.data(), DType::kF32, packed.numel());
  return values;
}

std::vector<double> to_doubles(const Tensor& tensor) {
  const Tensor packed = tensor.contiguous();
  std::vector<double> values(static_cast<size_t>(tensor.numel()));
  convert_elements(packed.strided_data(), packed.dtype(), values.data(), DType::kF64, packed.numel());
  return values;
}

}  // namespace lockstep
