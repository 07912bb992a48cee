// Products on AMX tiles with palette 1 written out here: no CPUID leaf is asked how tiles look, because some virtual
// machines hide the one that says.
#include "backend/cpu/panel.h"
#include "base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#define LOCKSTEP_AMX __attribute__((target("amx-tile,amx-bf16,avx512f")))

namespace lockstep::cpu {
namespace {

constexpr int64_t kTileRows = 16;     // rows of a tile; of B: pairs of k
constexpr int64_t kTileColumns = 16;  // f32 columns of C, 32-bit pairs of A and B
constexpr int64_t kTileDepth = 32;    // bf16 values along k

// Tiles 0-3: C as 2 x 2; 4-5: A, upper and lower 16 rows; 6-7: B, left and right 16 columns.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  TileShapes(int64_t upper, int64_t lower) {
    const int64_t tile_rows[8] = {upper, upper, lower, lower, upper, lower, kTileRows, kTileRows};
    for (int tile = 0; tile < 8; ++tile) {
      row_bytes[tile] = 64;
      rows[tile] = static_cast<uint8_t>(std::max<int64_t>(tile_rows[tile], 1));  // a tile of no rows is a fault
    }
  }
};
static_assert(sizeof(TileShapes) == 64);

struct Block {
  const std::byte *a_upper, *a_lower;
  int64_t a_bytes;  // from row to row
  const std::byte* panel;
  float *c_upper, *c_lower;
  int64_t c_bytes;
  int64_t steps;  // of 32 along k
  bool accumulate;
};

// 16 or 32 rows by 16 or 32 columns; the flags are constants so that every tile number is one.
template <bool kLower, bool kRight>
LOCKSTEP_AMX void multiply_block(const Block& b) {
  constexpr int64_t kPanelBytes = kPanel * 4;  // one row of the panel: 64 pairs
  if (b.accumulate) {
    _tile_loadd(0, b.c_upper, b.c_bytes);
    if constexpr (kRight) _tile_loadd(1, b.c_upper + kTileColumns, b.c_bytes);
    if constexpr (kLower) _tile_loadd(2, b.c_lower, b.c_bytes);
    if constexpr (kLower && kRight) _tile_loadd(3, b.c_lower + kTileColumns, b.c_bytes);
  } else {
    _tile_zero(0);
    if constexpr (kRight) _tile_zero(1);
    if constexpr (kLower) _tile_zero(2);
    if constexpr (kLower && kRight) _tile_zero(3);
  }
  for (int64_t step = 0; step < b.steps; ++step) {
    const std::byte* panel = b.panel + step * kTileRows * kPanelBytes;
    _tile_loadd(4, b.a_upper + step * 64, b.a_bytes);
    _tile_loadd(6, panel, kPanelBytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kRight) {
      _tile_loadd(7, panel + 64, kPanelBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kLower) {
      _tile_loadd(5, b.a_lower + step * 64, b.a_bytes);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (kLower && kRight) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, b.c_upper, b.c_bytes);
  if constexpr (kRight) _tile_stored(1, b.c_upper + kTileColumns, b.c_bytes);
  if constexpr (kLower) _tile_stored(2, b.c_lower, b.c_bytes);
  if constexpr (kLower && kRight) _tile_stored(3, b.c_lower + kTileColumns, b.c_bytes);
}

// Rows [row, row + count), count <= 32, with the tiles already shaped for that many.
void multiply_rows(const PanelProduct& p, int64_t row, int64_t count) {
  const std::byte* a = static_cast<const std::byte*>(p.a) + row * p.a_stride * 2;
  for (int64_t column = 0; column < p.columns; column += 2 * kTileColumns) {
    float* c = p.c + row * p.c_stride + column;
    const Block block = {.a_upper = a,
                         .a_lower = a + kTileRows * p.a_stride * 2,
                         .a_bytes = p.a_stride * 2,
                         .panel = static_cast<const std::byte*>(p.panel) + column * 4,
                         .c_upper = c,
                         .c_lower = c + kTileRows * p.c_stride,
                         .c_bytes = p.c_stride * 4,
                         .steps = p.k / kTileDepth,
                         .accumulate = p.accumulate};
    const bool lower = count > kTileRows, right = p.columns - column > kTileColumns;
    if (lower && right)
      multiply_block<true, true>(block);
    else if (lower)
      multiply_block<true, false>(block);
    else if (right)
      multiply_block<false, true>(block);
    else
      multiply_block<false, false>(block);
  }
}

LOCKSTEP_AMX void shape_tiles(int64_t rows) {
  const TileShapes shapes(std::min(rows, kTileRows), rows - kTileRows);
  // g++ 12 tells its optimiser that only the first 8 bytes are read: without this the rest is never written.
  __asm__ volatile("" : : "r"(&shapes) : "memory");
  _tile_loadconfig(&shapes);
}

LOCKSTEP_AMX void release_tiles() {
  _tile_release();
}

}  // namespace

bool tiles_multiply_right() {
  // Small whole numbers: every sum is exact, whatever its order. Remainders of rows, columns and k are all there.
  constexpr int64_t kRows = 37, kDepth = 70;
  BFloat16 a[kRows * kDepth];
  alignas(64) BFloat16 panel[kDepth * kPanel];
  alignas(64) float expected[kRows * kPanel], got[kRows * kPanel];
  for (int64_t i = 0; i < kRows * kDepth; ++i) a[i] = bfloat16_from(static_cast<float>(i * 7 % 13 - 6));
  for (int64_t i = 0; i < kDepth * kPanel; ++i) panel[i] = bfloat16_from(static_cast<float>(i * 5 % 11 - 5));
  for (int64_t i = 0; i < kRows * kPanel; ++i) expected[i] = got[i] = static_cast<float>(i % 17);
  PanelProduct product = {.a = a,
                          .a_stride = kDepth,
                          .panel = panel,
                          .c = expected,
                          .c_stride = kPanel,
                          .rows = kRows,
                          .k = kDepth,
                          .columns = kPanel - 16,
                          .accumulate = true};
  multiply_bf16_avx512(product);
  product.c = got;
  multiply_bf16_amx(product);
  return std::memcmp(expected, got, sizeof got) == 0;
}

void multiply_bf16_amx(const PanelProduct& p) {
  const int64_t depth = p.k / kTileDepth * kTileDepth;
  if (depth > 0 && p.rows > 0) {
    int64_t row = 0;
    if (p.rows >= 2 * kTileRows) shape_tiles(2 * kTileRows);
    for (; row + 2 * kTileRows <= p.rows; row += 2 * kTileRows) multiply_rows(p, row, 2 * kTileRows);
    if (row < p.rows) {
      shape_tiles(p.rows - row);
      multiply_rows(p, row, p.rows - row);
    }
    release_tiles();  // a thread that holds tiles pays for them at every switch
  }
  if (depth == p.k && depth > 0) return;  // of no k at all the sums are still to be set
  PanelProduct rest = p;
  rest.a = static_cast<const std::byte*>(p.a) + depth * 2;
  rest.panel = static_cast<const std::byte*>(p.panel) + depth / 2 * kPanel * 4;
  rest.k = p.k - depth;
  rest.accumulate = p.accumulate || depth > 0;
  multiply_bf16_avx512(rest);
}

}  // namespace lockstep::cpu

#else

namespace lockstep::cpu {

bool tiles_multiply_right() {
  return false;
}

void multiply_bf16_amx(const PanelProduct&) {
  fail(Code::kInternal, "linear", "AMX code on another architecture");
}

}  // namespace lockstep::cpu

#endif
