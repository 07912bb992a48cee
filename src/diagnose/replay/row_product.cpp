#include "diagnose/replay/row_product.h"

#include <algorithm>
#include <cstring>

// Sums of eight side by side; where the processor has wider registers, the same code is compiled for those too.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LOCKSTEP_FOR_WIDE_REGISTERS __attribute__((target_clones("arch=haswell", "default")))
#else
#define LOCKSTEP_FOR_WIDE_REGISTERS
#endif

namespace lockstep {
namespace {

typedef float Lanes __attribute__((vector_size(32)));
constexpr size_t kLanes = 8, kRowsAtOnce = 4;

// Four rows of x with one row of the weight.
LOCKSTEP_FOR_WIDE_REGISTERS void four_sums(const float* const* x, const float* w, size_t k, float* out) {
  Lanes sums[kRowsAtOnce] = {};
  size_t j = 0;
  for (; j + kLanes <= k; j += kLanes) {
    Lanes by;
    std::memcpy(&by, w + j, sizeof by);
    for (size_t row = 0; row < kRowsAtOnce; ++row) {
      Lanes of;
      std::memcpy(&of, x[row] + j, sizeof of);
      sums[row] += of * by;
    }
  }
  for (size_t row = 0; row < kRowsAtOnce; ++row) {
    float sum = 0;
    for (size_t lane = 0; lane < kLanes; ++lane) sum += sums[row][lane];
    for (size_t rest = j; rest < k; ++rest) sum += x[row][rest] * w[rest];
    out[row] = sum;
  }
}

}  // namespace

Flat row_product(const Flat& x, const Values& weight, const Flat& bias) {
  const size_t n = static_cast<size_t>(weight.rows()), k = static_cast<size_t>(weight.last()), rows = x.size() / k;
  Flat out(rows * n);
  for (size_t row = 0; row < rows; row += kRowsAtOnce) {
    const float* from[kRowsAtOnce];
    for (size_t i = 0; i < kRowsAtOnce; ++i) from[i] = x.data() + std::min(row + i, rows - 1) * k;
    float sums[kRowsAtOnce];
    for (size_t i = 0; i < n; ++i) {
      four_sums(from, weight.v.data() + i * k, k, sums);
      for (size_t at = 0; at < kRowsAtOnce && row + at < rows; ++at)
        out[(row + at) * n + i] = sums[at] + (bias.empty() ? 0 : bias[i]);
    }
  }
  return out;
}

}  // namespace lockstep
