// Tensors whose bytes are arrays of MLX.
#pragma once
#include <atomic>
#include <memory>

#include "backend/mlx/leaf.h"
#include "tensor/storage.h"
#include "tensor/tensor.h"

namespace lockstep::mlx {

// Bytes of living storages. MLX computes later and reuses memory as it likes: what tensors stand for is what a
// rehearsal can know.
class Account {
 public:
  void add(uint64_t bytes);
  void remove(uint64_t bytes) { in_use_ -= bytes; }
  MemoryUse use() const { return {.in_use_bytes = in_use_, .peak_bytes = peak_}; }
  void reset_peak() { peak_ = in_use_.load(); }

 private:
  std::atomic<uint64_t> in_use_ = 0, peak_ = 0;
};

class MlxStorage final : public Storage {
 public:
  MlxStorage(const Leaf& leaf, std::shared_ptr<Account> account, size_t bytes);
  ~MlxStorage() override;
  std::shared_ptr<const std::byte> host(size_t offset, size_t bytes) const override;
  void* device() const override { return slot_; }
  const char* place() const override { return "mlx"; }
  Slot* slot() const { return slot_; }

 private:
  const Leaf& leaf_;
  std::shared_ptr<Account> account_;
  size_t bytes_;
  Slot* slot_;
};

// Throws what an outcome says.
void check(const Leaf& leaf, Outcome outcome, const char* operation);

// Of a tensor in such a storage; anything else is refused.
View view_of(const Tensor& tensor, const char* operation);

// A tensor whose bytes stay in host memory for as long as MLX reads them, in whole pages around them, where MLX's
// allocator takes foreign pages; else copied. `page_bytes` 0: just the bytes.
void lend(const Leaf& leaf, const Tensor& host, const MlxStorage& to, size_t page_bytes);

}  // namespace lockstep::mlx
