// Rows of keys and values turned into the panels of panel.h.
#pragma once
#include <cstdint>

namespace lockstep::cpu {

// to[i * 64 + r] = rows[r * stride + i] for 64 rows and `count` (a multiple of 4) 32-bit elements of each: f32 keys, or
// pairs of bf16.
void turn_64_rows(const uint32_t* rows, int64_t stride, int64_t count, uint32_t* to);

// to[i] = a[i] | b[i] << 16: two rows of bf16 values side by side. `count` is a multiple of 16.
void pair_rows(const uint16_t* a, const uint16_t* b, int64_t count, uint32_t* to);

}  // namespace lockstep::cpu
