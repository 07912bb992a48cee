// What every target does with its bytes: hand them to a parser and accept one outcome or the other, a value or an
// Error.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "base/error.h"
#include "tensor/storage.h"
#include "tensor/tensor.h"

namespace lockstep {

// Sums the bytes of a tensor, so that a view that leaves its storage is caught by the sanitizer.
inline void touch(const Tensor& tensor) {
  volatile unsigned sum = 0;
  if (tensor.is_contiguous())
    for (const std::byte b : tensor.contiguous_bytes()) sum = sum + static_cast<unsigned>(b);
}

template <typename Parser>
int fuzz_one(const uint8_t* data, size_t size, const Parser& parser) {
  set_memory_limit(
      uint64_t{64} << 20);  // a small input has no business with more, and clearing it is all a run would do
  // A copy of exact size: reading one byte too far must be an error of the sanitizer, not the fuzzer's own slack.
  const std::unique_ptr<std::byte[]> copy(new std::byte[size]);
  for (size_t i = 0; i < size; ++i) copy[i] = static_cast<std::byte>(data[i]);
  try {
    parser(std::span<const std::byte>(copy.get(), size));
  } catch (const Error& error) {
    if (error.code() == Code::kInternal) std::abort();  // whatever a file holds, it is never our bug
  }
  release_cached_memory();
  return 0;
}

}  // namespace lockstep
