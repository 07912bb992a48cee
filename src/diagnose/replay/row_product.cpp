#include "diagnose/replay/row_product.h"

#include <algorithm>
#include <cstring>

#include "base/wide_registers.h"

namespace lockstep {
namespace {

typedef float Lanes __attribute__((vector_size(32)));
// Twelve sums, four operands: what sixteen registers hold, and enough sums at once to hide how long each takes.
constexpr size_t kLanes = 8, kRowsAtOnce = 4, kOutputsAtOnce = 3;

// Some rows of x with some rows of the weight: sums of eight side by side.
LOCKSTEP_FOR_WIDE_REGISTERS void block_of_sums(const float* const* x, const float* const* w, size_t k,
                                               float (*out)[kOutputsAtOnce]) {
  Lanes sums[kRowsAtOnce][kOutputsAtOnce] = {};
  size_t j = 0;
  for (; j + kLanes <= k; j += kLanes) {
    Lanes by[kOutputsAtOnce];
#pragma GCC unroll 4  // only then are the sums held in registers
    for (size_t i = 0; i < kOutputsAtOnce; ++i) std::memcpy(&by[i], w[i] + j, sizeof by[i]);
#pragma GCC unroll 4
    for (size_t row = 0; row < kRowsAtOnce; ++row) {
      Lanes of;
      std::memcpy(&of, x[row] + j, sizeof of);
#pragma GCC unroll 4
      for (size_t i = 0; i < kOutputsAtOnce; ++i) sums[row][i] += of * by[i];
    }
  }
#pragma GCC unroll 4
  for (size_t row = 0; row < kRowsAtOnce; ++row)
#pragma GCC unroll 4
    for (size_t i = 0; i < kOutputsAtOnce; ++i) {
      float sum = 0;
      for (size_t lane = 0; lane < kLanes; ++lane) sum += sums[row][i][lane];
      for (size_t rest = j; rest < k; ++rest) sum += x[row][rest] * w[i][rest];
      out[row][i] = sum;
    }
}

}  // namespace

Flat row_product(const Flat& x, const Values& weight, const Flat& bias) {
  const size_t n = static_cast<size_t>(weight.rows()), k = static_cast<size_t>(weight.last()), rows = x.size() / k;
  Flat out(rows * n);
  for (size_t output = 0; output < n; output += kOutputsAtOnce) {
    const float* by[kOutputsAtOnce];  // beyond the end the last again, whose sums nobody reads
    for (size_t i = 0; i < kOutputsAtOnce; ++i) by[i] = weight.v.data() + std::min(output + i, n - 1) * k;
    for (size_t row = 0; row < rows; row += kRowsAtOnce) {
      const float* from[kRowsAtOnce];
      for (size_t i = 0; i < kRowsAtOnce; ++i) from[i] = x.data() + std::min(row + i, rows - 1) * k;
      float sums[kRowsAtOnce][kOutputsAtOnce];
      block_of_sums(from, by, k, sums);
      for (size_t at = 0; at < kRowsAtOnce && row + at < rows; ++at)
        for (size_t i = 0; i < kOutputsAtOnce && output + i < n; ++i)
          out[(row + at) * n + output + i] = sums[at][i] + (bias.empty() ? 0 : bias[output + i]);
    }
  }
  return out;
}

}  // namespace lockstep
