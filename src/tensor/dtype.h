// Element types, their sizes and their names in the formats we read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/float_formats.h"

namespace lockstep {

enum class DType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kBool
};
inline constexpr int kDTypeCount = 15;

size_t dtype_bytes(DType dtype);
std::string_view dtype_name(DType dtype);        // "f32", "bf16", "f8_e4m3fn", "bool": ours, in records and messages
std::string_view safetensors_name(DType dtype);  // "F32", "BF16", "F8_E4M3", "BOOL"
std::optional<DType> dtype_from_name(
    std::string_view name);  // ours, torch's ("float32", "torch.bfloat16") and safetensors' names
bool is_floating(DType dtype);
bool is_integer(DType dtype);       // signed or unsigned, not bool
double unit_roundoff(DType dtype);  // 2^-24 for f32, 2^-9 for bf16 (mantissa 8 bits incl. hidden), ...; 0 for integers

// The C++ type of a dtype: dispatch(dtype, []<typename T>(TypeTag<T>) { ... }).
template <typename T>
struct TypeTag {
  using type = T;
};

template <typename Function>
decltype(auto) dispatch(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kF64:
      return function(TypeTag<double>{});
    case DType::kF32:
      return function(TypeTag<float>{});
    case DType::kF16:
      return function(TypeTag<Half>{});
    case DType::kBF16:
      return function(TypeTag<BFloat16>{});
    case DType::kF8E4M3:
      return function(TypeTag<Float8E4M3>{});
    case DType::kF8E5M2:
      return function(TypeTag<Float8E5M2>{});
    case DType::kI8:
      return function(TypeTag<int8_t>{});
    case DType::kI16:
      return function(TypeTag<int16_t>{});
    case DType::kI32:
      return function(TypeTag<int32_t>{});
    case DType::kI64:
      return function(TypeTag<int64_t>{});
    case DType::kU8:
      return function(TypeTag<uint8_t>{});
    case DType::kU16:
      return function(TypeTag<uint16_t>{});
    case DType::kU32:
      return function(TypeTag<uint32_t>{});
    case DType::kU64:
      return function(TypeTag<uint64_t>{});
    case DType::kBool:
      break;
  }
  return function(TypeTag<bool>{});
}

template <typename T>
struct DTypeOf;
#define LOCKSTEP_DTYPE_OF(type, value)            \
  template <>                                     \
  struct DTypeOf<type> {                          \
    static constexpr DType kValue = DType::value; \
  }
LOCKSTEP_DTYPE_OF(double, kF64);
LOCKSTEP_DTYPE_OF(float, kF32);
LOCKSTEP_DTYPE_OF(Half, kF16);
LOCKSTEP_DTYPE_OF(BFloat16, kBF16);
LOCKSTEP_DTYPE_OF(Float8E4M3, kF8E4M3);
LOCKSTEP_DTYPE_OF(Float8E5M2, kF8E5M2);
LOCKSTEP_DTYPE_OF(int8_t, kI8);
LOCKSTEP_DTYPE_OF(int16_t, kI16);
LOCKSTEP_DTYPE_OF(int32_t, kI32);
LOCKSTEP_DTYPE_OF(int64_t, kI64);
LOCKSTEP_DTYPE_OF(uint8_t, kU8);
LOCKSTEP_DTYPE_OF(uint16_t, kU16);
LOCKSTEP_DTYPE_OF(uint32_t, kU32);
LOCKSTEP_DTYPE_OF(uint64_t, kU64);
LOCKSTEP_DTYPE_OF(bool, kBool);
#undef LOCKSTEP_DTYPE_OF

}  // namespace lockstep
