#include "tensor/convert.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/error.h"

namespace lockstep {
namespace {

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
  if constexpr (std::is_same_v<To, BFloat16>) {
    return bfloat16_from(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, Half>) {
    return half_from(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, Float8E4M3>) {
    return float8_e4m3_from(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, Float8E5M2>) {
    return float8_e5m2_from(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
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
  for (int64_t i = 0; i < count; ++i) out[i] = narrow<To>(widen(in[i]));
}

void copy_axis(const std::byte* from, std::byte* to, const Tensor& a, const Tensor& b, size_t axis, size_t item) {
  const int64_t n = a.shape()[axis];
  const int64_t from_step = a.strides()[axis] * static_cast<int64_t>(item),
                to_step = b.strides()[axis] * static_cast<int64_t>(item);
  if (axis + 1 == a.rank()) {
    if (a.strides()[axis] == 1 && b.strides()[axis] == 1) {
      std::memcpy(to, from, static_cast<size_t>(n) * item);
      return;
    }
    const auto run = [&]<typename T>(T) {
      for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * to_step, from + i * from_step, sizeof(T));
    };
    switch (item) {
      case 1:
        return run(uint8_t{});
      case 2:
        return run(uint16_t{});
      case 4:
        return run(uint32_t{});
      default:
        return run(uint64_t{});
    }
  }
  for (int64_t i = 0; i < n; ++i) copy_axis(from + i * from_step, to + i * to_step, a, b, axis + 1, item);
}

}  // namespace

void convert_elements(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count) {
  if (from_dtype == to_dtype) {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * dtype_bytes(from_dtype));
    return;
  }
  dispatch(from_dtype, [&]<typename From>(TypeTag<From>) {
    dispatch(to_dtype, [&]<typename To>(TypeTag<To>) { convert_run<From, To>(from, to, count); });
  });
}

void copy_strided(const Tensor& from, Tensor& to) {
  if (from.shape() != to.shape() || from.dtype() != to.dtype())
    fail(Code::kInternal, "copy", "shapes or dtypes differ",
         {.expected = to_string(to.shape()), .got = to_string(from.shape())});
  if (from.numel() == 0) return;
  const size_t item = dtype_bytes(from.dtype());
  if (from.rank() == 0 || (from.is_contiguous() && to.is_contiguous())) {
    std::memcpy(to.mutable_strided_data(), from.strided_data(), from.bytes());
    return;
  }
  copy_axis(from.strided_data(), to.mutable_strided_data(), from, to, 0, item);
}

double element_as_double(const std::byte* at, DType dtype) {
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
