// A square tile turned in registers: rows of 16 bytes, interleaved until columns are rows.
#pragma once
#include <cstddef>
#include <cstring>
#include <utility>

namespace lockstep {

// 16 bytes as a vector of both compilers. Highway without run-time dispatch would be scalar here, and interleaving
// needs no more than the instructions every 64-bit CPU has.
template <typename T>
struct Lanes16 {
  typedef T Vector __attribute__((vector_size(16)));
  static constexpr size_t kCount = 16 / sizeof(T);

  template <size_t... i>
  static Vector lower(Vector a, Vector b, std::index_sequence<i...>) {
    return __builtin_shufflevector(a, b, (i % 2 ? kCount : 0) + i / 2 ...);
  }
  template <size_t... i>
  static Vector upper(Vector a, Vector b, std::index_sequence<i...>) {
    return __builtin_shufflevector(a, b, (i % 2 ? kCount : 0) + kCount / 2 + i / 2 ...);
  }
};

// [kSide, kSide] → [kSide, kSide], row strides in elements. kSide is a multiple of 16 / sizeof(T).
template <typename T, size_t kSide>
inline void transpose_tile(const T* from, size_t from_stride, T* to, size_t to_stride) {
  using Lanes = Lanes16<T>;
  using V = typename Lanes::Vector;
  constexpr size_t kCount = Lanes::kCount;
  constexpr std::make_index_sequence<kCount> kAll{};
  static_assert(kSide % kCount == 0);
  for (size_t i = 0; i < kSide; i += kCount)
    for (size_t j = 0; j < kSide; j += kCount) {
      V rows[kCount], next[kCount];
      for (size_t r = 0; r < kCount; ++r) std::memcpy(&rows[r], from + (i + r) * from_stride + j, 16);
      // Each round interleaves row r with row r + kCount / 2: after log2(kCount) rounds the block is transposed.
      for (size_t round = kCount; round > 1; round /= 2) {
        for (size_t r = 0; r < kCount / 2; ++r) {
          next[2 * r] = Lanes::lower(rows[r], rows[r + kCount / 2], kAll);
          next[2 * r + 1] = Lanes::upper(rows[r], rows[r + kCount / 2], kAll);
        }
        for (size_t r = 0; r < kCount; ++r) rows[r] = next[r];
      }
      for (size_t r = 0; r < kCount; ++r) std::memcpy(to + (j + r) * to_stride + i, &rows[r], 16);
    }
}

}  // namespace lockstep
