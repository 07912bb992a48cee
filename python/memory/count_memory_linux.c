/* liblockstep_memory.so, put before a profiled program (LD_PRELOAD): counts what it takes from the C library's heap, which is where
 * torch, MLX and NumPy keep their tensors on a CPU. The profiler reads the counters at the borders of modules. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
extern void __libc_free(void*);

struct lockstep_memory {
  _Atomic int64_t live, allocated, peak;
};
struct lockstep_memory lockstep_memory_counts;

#define counts lockstep_memory_counts

static void add(void* block) {
  if (!block) return;
  const int64_t bytes = (int64_t)malloc_usable_size(block);
  atomic_fetch_add_explicit(&counts.allocated, bytes, memory_order_relaxed);
  const int64_t live = atomic_fetch_add_explicit(&counts.live, bytes, memory_order_relaxed) + bytes;
  int64_t peak = atomic_load_explicit(&counts.peak, memory_order_relaxed);
  while (live > peak && !atomic_compare_exchange_weak_explicit(&counts.peak, &peak, live, memory_order_relaxed, memory_order_relaxed)) {
  }
}

static void take(int64_t bytes) { atomic_fetch_sub_explicit(&counts.live, bytes, memory_order_relaxed); }

void* malloc(size_t bytes) {
  void* block = __libc_malloc(bytes);
  add(block);
  return block;
}

void* calloc(size_t count, size_t bytes) {
  void* block = __libc_calloc(count, bytes);
  add(block);
  return block;
}

void* realloc(void* old, size_t bytes) {
  const int64_t before = old ? (int64_t)malloc_usable_size(old) : 0;
  void* block = __libc_realloc(old, bytes);
  if (block || bytes == 0) take(before);
  add(block);
  return block;
}

void free(void* block) {
  if (!block) return;
  take((int64_t)malloc_usable_size(block));
  __libc_free(block);
}

void* memalign(size_t alignment, size_t bytes) {
  void* block = __libc_memalign(alignment, bytes);
  add(block);
  return block;
}

void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  const int before = errno;
  void* block = memalign(alignment, bytes);
  errno = before; /* posix_memalign leaves it alone */
  if (!block) return ENOMEM;
  *out = block;
  return 0;
}
