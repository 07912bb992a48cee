// libxxhash; on x86-64 in the form that chooses SSE2, AVX2 or AVX-512 at run time.
#pragma once
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif
