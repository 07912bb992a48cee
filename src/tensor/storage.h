// Where tensor bytes live, where host bytes come from, and how many are in use: a pool that hands freed blocks out
// again, so that a second forward pass allocates nothing, with a peak and a limit.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep {

inline constexpr size_t kTensorAlignment = 64;

class PendingDigest;
class Tensor;

// The bytes under one or more tensors, wherever they are.
class Storage {
 public:
  virtual ~Storage() = default;
  // `bytes` bytes from `offset` on, readable by the CPU for as long as the result lives: host memory itself, or what
  // was evaluated, waited for or downloaded.
  virtual std::shared_ptr<const std::byte> host(size_t offset, size_t bytes) const = 0;
  // The owner's handle of the storage's first byte; null for host memory, which any backend may read.
  virtual void* device() const { return nullptr; }
  virtual const char* place() const { return "host"; }  // in messages: "cuda:0"
  // Statistics and checksum of a contiguous tensor in this storage without its values coming here; null where the owner
  // has no such way. What is written into the tensor afterwards does not count.
  virtual std::shared_ptr<PendingDigest> digest(const Tensor&) const { return nullptr; }
};

struct MemoryUse {
  uint64_t in_use_bytes = 0, peak_bytes = 0, system_allocations = 0;
};

std::shared_ptr<std::byte> allocate_bytes(size_t bytes);  // 64-byte aligned, uninitialised; throws Error{kMemory}
MemoryUse memory_use();
void reset_peak_memory();
// Bytes that a file's mapping lends and that will all be read, such as weights used in place: counted as in use, and
// held to the limit, for as long as the result lives.
std::shared_ptr<const void> count_borrowed_bytes(std::shared_ptr<const void> owner, size_t bytes);
void set_memory_limit(uint64_t bytes);  // 0: none; free blocks that the pool keeps count too
uint64_t memory_limit();
void release_cached_memory();  // gives the pool's free blocks back to the system

}  // namespace lockstep
