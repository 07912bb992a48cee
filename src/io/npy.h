// NumPy .npy 1.0 to 3.0. bfloat16 is '<V2' and fp8 '|V1' on disk; `void_dtype` says what such a
// file holds; without it V2 reads as bf16 and V1 as u8, the bytes as they are. Complex numbers read as [..., 2] reals.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "io/tensor_info.h"

namespace lockstep {

Tensor read_npy(const fs::path& path,
                std::optional<DType> void_dtype = std::nullopt);  // mapped where alignment and order allow

// What the header promises, checked against the size of the file. `bytes` need hold no more than the header.
struct NpyLayout {
  DType dtype = DType::kF32;
  Shape shape;
  bool fortran_order = false, big_endian = false;
  bool complex = false;  // the last axis is real and imaginary part
  size_t data_at = 0;
};
NpyLayout parse_npy_layout(std::span<const std::byte> bytes, uint64_t file_size, std::string_view origin,
                           std::optional<DType> void_dtype = std::nullopt);

Tensor parse_npy(std::span<const std::byte> bytes, std::string_view origin, std::shared_ptr<const void> owner,
                 std::optional<DType> void_dtype = std::nullopt);
// C order, little endian, atomic; strided views are packed first. `complex`: [..., 2] reals become complex numbers.
void write_npy(const fs::path& path, const Tensor& tensor, bool complex = false);
// The bytes before the data, padded to a multiple of `alignment` (a power of two, 64 to 4096).
std::string npy_header(DType dtype, const Shape& shape, size_t alignment = 64, bool complex = false);

}  // namespace lockstep
