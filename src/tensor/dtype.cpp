#include "tensor/dtype.h"

#include <array>
#include <cmath>

namespace lockstep {
namespace {

struct Row {
  DType dtype;
  size_t bytes;
  std::string_view name, torch, safetensors;
  int significand_bits;  // hidden bit included; 0: not a float
};

constexpr std::array<Row, kDTypeCount> kRows{{
    {DType::kF64, 8, "f64", "float64", "F64", 53},
    {DType::kF32, 4, "f32", "float32", "F32", 24},
    {DType::kF16, 2, "f16", "float16", "F16", 11},
    {DType::kBF16, 2, "bf16", "bfloat16", "BF16", 8},
    {DType::kF8E4M3, 1, "f8_e4m3fn", "float8_e4m3fn", "F8_E4M3", 4},
    {DType::kF8E5M2, 1, "f8_e5m2", "float8_e5m2", "F8_E5M2", 3},
    {DType::kI8, 1, "i8", "int8", "I8", 0},
    {DType::kI16, 2, "i16", "int16", "I16", 0},
    {DType::kI32, 4, "i32", "int32", "I32", 0},
    {DType::kI64, 8, "i64", "int64", "I64", 0},
    {DType::kU8, 1, "u8", "uint8", "U8", 0},
    {DType::kU16, 2, "u16", "uint16", "U16", 0},
    {DType::kU32, 4, "u32", "uint32", "U32", 0},
    {DType::kU64, 8, "u64", "uint64", "U64", 0},
    {DType::kBool, 1, "bool", "bool", "BOOL", 0},
}};

const Row& row(DType dtype) {
  return kRows[static_cast<size_t>(dtype)];
}

}  // namespace

size_t dtype_bytes(DType dtype) {
  return row(dtype).bytes;
}
std::string_view dtype_name(DType dtype) {
  return row(dtype).name;
}
std::string_view safetensors_name(DType dtype) {
  return row(dtype).safetensors;
}
bool is_floating(DType dtype) {
  return row(dtype).significand_bits > 0;
}
bool is_integer(DType dtype) {
  return !is_floating(dtype) && dtype != DType::kBool;
}
double unit_roundoff(DType dtype) {
  return is_floating(dtype) ? std::ldexp(1.0, -row(dtype).significand_bits) : 0.0;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  if (name.starts_with("torch.") || name.starts_with("mlx.core.")) name.remove_prefix(name.rfind('.') + 1);
  if (name == "bool_") return DType::kBool;
  for (const Row& r : kRows)
    if (name == r.name || name == r.torch || name == r.safetensors) return r.dtype;
  return std::nullopt;
}

}  // namespace lockstep
