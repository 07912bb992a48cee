// NumPy .npy 1.0 to 3.0. bfloat16 is '<V2' and fp8 '|V1' on disk; `void_dtype` says what such a file holds.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "io/tensor_info.h"

namespace lockstep {

Tensor read_npy(const fs::path& path,
                std::optional<DType> void_dtype = std::nullopt);  // mapped where alignment and order allow
Tensor parse_npy(std::span<const std::byte> bytes, std::string_view origin, std::shared_ptr<const void> owner,
                 std::optional<DType> void_dtype = std::nullopt);
void write_npy(const fs::path& path,
               const Tensor& tensor);  // C order, little endian, atomic; strided views are packed first
std::string npy_header(DType dtype, const Shape& shape);  // the bytes before the data

}  // namespace lockstep
