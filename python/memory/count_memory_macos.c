/* liblockstep_memory.dylib, put before a profiled program (DYLD_INSERT_LIBRARIES): counts what it takes from the system's heap, as
 * count_memory_linux.c does. The loader leads the calls of every other library here; our own reach the system. */
#include <malloc/malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct lockstep_memory {
  _Atomic int64_t live, allocated, peak;
};
struct lockstep_memory lockstep_memory_counts;

#define counts lockstep_memory_counts

static void add(const void* block) {
  if (!block) return;
  const int64_t bytes = (int64_t)malloc_size(block);
  atomic_fetch_add_explicit(&counts.allocated, bytes, memory_order_relaxed);
  const int64_t live = atomic_fetch_add_explicit(&counts.live, bytes, memory_order_relaxed) + bytes;
  int64_t peak = atomic_load_explicit(&counts.peak, memory_order_relaxed);
  while (live > peak && !atomic_compare_exchange_weak_explicit(&counts.peak, &peak, live, memory_order_relaxed, memory_order_relaxed)) {
  }
}

static void take(int64_t bytes) { atomic_fetch_sub_explicit(&counts.live, bytes, memory_order_relaxed); }

static void* counted_malloc(size_t bytes) {
  void* block = malloc(bytes);
  add(block);
  return block;
}

static void* counted_calloc(size_t count, size_t bytes) {
  void* block = calloc(count, bytes);
  add(block);
  return block;
}

static void* counted_realloc(void* old, size_t bytes) {
  const int64_t before = old ? (int64_t)malloc_size(old) : 0;
  void* block = realloc(old, bytes);
  if (block || bytes == 0) take(before);
  add(block);
  return block;
}

static void counted_free(void* block) {
  if (!block) return;
  take((int64_t)malloc_size(block));
  free(block);
}

static void* counted_aligned_alloc(size_t alignment, size_t bytes) {
  void* block = aligned_alloc(alignment, bytes);
  add(block);
  return block;
}

static int counted_posix_memalign(void** out, size_t alignment, size_t bytes) {
  const int error = posix_memalign(out, alignment, bytes);
  if (!error) add(*out);
  return error;
}

struct replaced {
  const void *ours, *theirs;
};
__attribute__((used)) static const struct replaced table[] __attribute__((section("__DATA,__interpose"))) = {
    {(const void*)counted_malloc, (const void*)malloc},
    {(const void*)counted_calloc, (const void*)calloc},
    {(const void*)counted_realloc, (const void*)realloc},
    {(const void*)counted_free, (const void*)free},
    {(const void*)counted_aligned_alloc, (const void*)aligned_alloc},
    {(const void*)counted_posix_memalign, (const void*)posix_memalign},
};
