#include "tensor/storage.h"

#include <pthread.h>

#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/error.h"

namespace lockstep {
namespace {

// Sizes are rounded up to one of four steps per power of two: reuse across slightly different shapes at no more than 25
// % waste.
size_t block_size(size_t bytes) {
  if (bytes <= 4096) return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
  size_t power = 4096;
  while (power * 2 < bytes) power *= 2;
  const size_t step = power / 4;
  return (bytes + step - 1) / step * step;
}

class Pool {
 public:
  std::byte* take(size_t size) {
    const std::lock_guard lock(mutex_);
    hold_to_limit(size);
    std::byte* data = nullptr;
    auto& free = free_[size];
    if (!free.empty()) {
      data = free.back().data;
      free.pop_back();
      cached_bytes_ -= size;
    } else {
      if (limit_ && use_.in_use_bytes + cached_bytes_ + size > limit_) drop_cached();
      data = static_cast<std::byte*>(std::aligned_alloc(kTensorAlignment, size));
      if (!data) {
        drop_cached();
        data = static_cast<std::byte*>(std::aligned_alloc(kTensorAlignment, size));
      }
      if (!data) fail(Code::kMemory, "allocate", "the system has no " + std::to_string(size) + " bytes to give");
      ++use_.system_allocations;
    }
    count(size);
    return data;
  }

  void borrow(size_t size) {
    const std::lock_guard lock(mutex_);
    hold_to_limit(size);
    if (limit_ && use_.in_use_bytes + cached_bytes_ + size > limit_) drop_cached();
    count(size);
  }

  void give_back_borrowed(size_t size) {
    const std::lock_guard lock(mutex_);
    use_.in_use_bytes -= size;
  }

  void give(std::byte* data, size_t size) noexcept {
    const std::lock_guard lock(mutex_);
    use_.in_use_bytes -= size;
    // Blocks beyond the largest amount ever in use could not all be wanted again. Those used last are kept: the sizes
    // that loading a model needed are not those of its passes.
    while (cached_bytes_ > 0 && cached_bytes_ + size > use_.peak_bytes) drop_oldest();
    try {
      free_[size].push_back({data, ++clock_});
      cached_bytes_ += size;
    } catch (...) {
      std::free(data);
    }
  }

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  MemoryUse use() {
    const std::lock_guard lock(mutex_);
    return use_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    use_.peak_bytes = use_.in_use_bytes;
  }
  void set_limit(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
  }
  uint64_t limit() {
    const std::lock_guard lock(mutex_);
    return limit_;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    drop_cached();
  }

 private:
  void hold_to_limit(size_t size) const {
    if (limit_ && use_.in_use_bytes + size > limit_)
      fail(Code::kMemory, "allocate", "the memory limit would be passed",
           {.expected = "at most " + std::to_string(limit_) + " bytes",
            .got = std::to_string(use_.in_use_bytes + size),
            .hint = "a higher --memory-limit or a smaller image"});
  }

  void count(size_t size) {
    use_.in_use_bytes += size;
    if (use_.in_use_bytes > use_.peak_bytes) use_.peak_bytes = use_.in_use_bytes;
  }

  void drop_oldest() {
    auto oldest = free_.end();
    for (auto entry = free_.begin(); entry != free_.end(); ++entry)
      if (!entry->second.empty() &&
          (oldest == free_.end() || entry->second.front().freed_at < oldest->second.front().freed_at))
        oldest = entry;
    std::free(oldest->second.front().data);
    oldest->second.erase(oldest->second.begin());
    cached_bytes_ -= oldest->first;
  }

  void drop_cached() {
    for (auto& [size, blocks] : free_) {
      for (const FreeBlock& block : blocks) std::free(block.data);
      blocks.clear();
    }
    cached_bytes_ = 0;
  }

  struct FreeBlock {
    std::byte* data;
    uint64_t freed_at;
  };

  std::mutex mutex_;
  std::unordered_map<size_t, std::vector<FreeBlock>> free_;  // of each size, those freed first at the front
  uint64_t cached_bytes_ = 0, limit_ = 0, clock_ = 0;
  MemoryUse use_;
};

Pool& pool();

// A child that forks while another thread allocates would find the lock taken for ever.
void lock_for_fork() {
  pool().lock();
}
void unlock_after_fork() {
  pool().unlock();
}

Pool& pool() {
  static Pool* instance = [] {
    ::pthread_atfork(lock_for_fork, unlock_after_fork, unlock_after_fork);
    return new Pool;  // never destroyed: tensors in static storage may outlive any order of destruction
  }();
  return *instance;
}

}  // namespace

std::shared_ptr<std::byte> allocate_bytes(size_t bytes) {
  if (bytes > (size_t{1} << 62)) fail(Code::kMemory, "allocate", "the size is beyond any memory");
  const size_t size = block_size(bytes ? bytes : 1);
  return {pool().take(size), [size](std::byte* data) { pool().give(data, size); }};
}

std::shared_ptr<const void> count_borrowed_bytes(std::shared_ptr<const void> owner, size_t bytes) {
  pool().borrow(bytes);
  const void* address = owner.get();
  return {address, [owner = std::move(owner), bytes](const void*) { pool().give_back_borrowed(bytes); }};
}

MemoryUse memory_use() {
  return pool().use();
}
void reset_peak_memory() {
  pool().reset_peak();
}
void set_memory_limit(uint64_t bytes) {
  pool().set_limit(bytes);
}
uint64_t memory_limit() {
  return pool().limit();
}
void release_cached_memory() {
  pool().release();
}

}  // namespace lockstep
