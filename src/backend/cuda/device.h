// An open device: its memory, and the queues that kernels are put on.
#pragma once
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/leaf.h"
#include "backend/cuda/transfers.h"
#include "tensor/storage.h"
#include "tensor/tensor.h"

namespace lockstep::cuda {

inline constexpr int kCopiesIn = 2;  // the stream that copies to the device beside them
inline constexpr int kQueues = 2;    // streams that compute; the second runs beside the first inside a captured graph

// A piece of device memory and who touched it last, by queue and position in it: what two queues must wait for.
struct Block {
  void* data = nullptr;
  size_t bytes = 0;
  int writer = 0;
  uint64_t written = 0;
  uint64_t read[kQueues] = {};
};

class Device;
class Digests;

// Blocks handed out again when they are freed. A captured graph has a pool of its own, since its kernels keep their
// addresses.
class BlockPool {
 public:
  explicit BlockPool(Device& device) : device_(device) {}
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  Block* take(size_t bytes);
  void give(Block* block);
  void drop_cached();

 private:
  Device& device_;
  std::unordered_map<size_t, std::vector<Block*>> free_;
};

class DeviceStorage final : public Storage {
 public:
  DeviceStorage(std::shared_ptr<Device> device, std::shared_ptr<BlockPool> pool, size_t bytes);
  ~DeviceStorage() override;
  std::shared_ptr<const std::byte> host(size_t offset, size_t bytes) const override;
  void* device() const override { return block_->data; }
  const char* place() const override;
  std::shared_ptr<PendingDigest> digest(const Tensor& tensor) const override;
  Block& block() const { return *block_; }
  const Device& owner() const { return *device_; }
  uint64_t version = 0;  // of what was written

 private:
  std::shared_ptr<Device> device_;
  std::shared_ptr<BlockPool> pool_;
  Block* block_;
};

// out = x + gate * y, put off: a norm of `out` mostly follows, and one pass over the rows then does both.
struct GatedSum {
  Tensor x, gate, y;  // [..., D], [B, D], [..., D]
  Tensor out;         // [..., D]
  int64_t rows_per_batch = 1;
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  static std::shared_ptr<Device> open(int index);
  ~Device();

  const Leaf& leaf() const { return *leaf_; }
  Context context() const { return context_; }
  const DeviceFacts& facts() const { return facts_; }
  const std::string& place() const { return place_; }
  uint64_t free_bytes() const;

  std::shared_ptr<DeviceStorage> storage(size_t bytes);
  Tensor allocate(DType dtype, const Shape& shape);
  void upload(const Tensor& host, Tensor& to);  // both contiguous, of the same bytes
  // The same while the caller goes on; it is done before the next kernel begins. What it throws may be thrown there.
  void upload_later(const Tensor& host, Tensor& to);
  void copy_to_host(const Tensor& from, void* to);  // from anywhere, contiguous
  std::shared_ptr<const std::byte> download(const void* from, size_t bytes);
  void synchronize();
  std::shared_ptr<PendingDigest> digest(const Tensor& tensor);  // Storage::digest

  // Throws what an outcome says; true when it is kDone, false when it is kUnsupported.
  bool multiplies_fp8() const { return facts_.major * 10 + facts_.minor >= 89; }
  uint64_t version(const Tensor& tensor) const;  // changes whenever something is written into its storage

  bool check(Outcome outcome, const char* operation) const;

  // Puts launch(stream) on a queue, after all that it depends on.
  template <typename Launch>
  void issue(const char* operation, std::initializer_list<const Tensor*> inputs,
             std::initializer_list<const Tensor*> outputs, int64_t rows, Launch&& launch) {
    if (!try_issue(operation, inputs, outputs, rows, std::forward<Launch>(launch))) refuse(operation);
  }
  // The same for work that the leaf may not support: false when it does not.
  template <typename Launch>
  bool try_issue(const char* operation, std::initializer_list<const Tensor*> inputs,
                 std::initializer_list<const Tensor*> outputs, int64_t rows, Launch&& launch) {
    transfers_->finish();
    settle(inputs, outputs);
    const int queue = choose_queue(rows);
    before(queue, inputs, outputs);
    const Event begin = mark();
    if (!check(launch(leaf_->stream(context_, queue)), operation)) return false;
    if (begin) measured_.push_back({operation, rows, begin, mark()});
    after(queue, inputs, outputs);
    return true;
  }

  // The sum is made when something reads or writes what belongs to it, unless take() has it before.
  void defer(GatedSum sum);
  std::optional<GatedSum> take(const Tensor& out);
  void settle_all();
  void drop_deferred();  // what is put off holds tensors, and they hold the device

  void start_profile();
  std::vector<KernelTime> end_profile();

  bool capturing() const { return capturing_; }
  void begin_capture(std::shared_ptr<BlockPool> pool);
  Graph end_capture();  // null when it failed
  void launch(Graph graph);

  // Accounts of the pools.
  void* allocate_bytes(size_t bytes);
  void release_bytes(void* data, size_t bytes);
  void count(int64_t bytes);
  MemoryUse memory() const { return use_; }
  void reset_peak() { use_.peak_bytes = use_.in_use_bytes; }

  View view(const Tensor& tensor, const char* operation) const;
  void* address(const Tensor& tensor, const char* operation) const;

 private:
  Device();
  int choose_queue(int64_t rows) const;
  void settle(std::span<const Tensor* const> inputs, std::span<const Tensor* const> outputs);
  void make(const GatedSum& sum);
  void before(int queue, std::span<const Tensor* const> inputs, std::span<const Tensor* const> outputs);
  void after(int queue, std::span<const Tensor* const> inputs, std::span<const Tensor* const> outputs);
  void wait_for(int queue, int other, uint64_t position);
  DeviceStorage& storage_of(const Tensor& tensor, const char* operation) const;
  Block& block_of(const Tensor& tensor, const char* operation) const;
  [[noreturn]] void refuse(const char* operation) const;
  [[noreturn]] void out_of_memory(size_t bytes) const;
  Event event();
  Event mark();  // null unless a profile is being taken

  const Leaf* leaf_ = nullptr;
  Context context_ = nullptr;
  DeviceFacts facts_{};
  std::string place_;
  std::shared_ptr<BlockPool> pool_, capture_pool_;
  bool capturing_ = false;
  uint64_t position_[kQueues] = {1, 1};                  // of the last kernel on a queue
  uint64_t seen_[kQueues][kQueues] = {};                 // up to where queue i has waited for queue j
  std::unordered_map<uint64_t, Event> events_[kQueues];  // while capturing: after each kernel
  std::vector<Event> spare_events_;
  struct Measured {
    const char* operation;
    int64_t rows;
    Event begin, end;
  };
  uint64_t launches_ = 0;
  std::vector<GatedSum> deferred_;
  bool profiling_ = false;
  std::vector<Measured> measured_;
  MemoryUse use_;
  uint64_t allocated_bytes_ = 0;
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<Digests> digests_;  // once somebody records
};

}  // namespace lockstep::cuda
