// Which instruction sets Highway compiles for. AVX2 and AVX-512 are what we tune; the oldest fallback keeps every other
// x86-64 machine running; the sets between add compile time and nothing else. On ARM it is NEON: vectors of a length
// known only at run time cannot be held in arrays.
#pragma once
#include "hwy/detect_targets.h"

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
