// What a file of AVX512-BF16 code begins with: the intrinsics, and the attribute that lets one function use them in a
// program compiled for every x86-64. Included from .cpp files alone: the pragma holds to the end of the file.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // g++ 12's own intrinsics start from undefined registers
#endif

#define LOCKSTEP_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,avx2")))
#endif
