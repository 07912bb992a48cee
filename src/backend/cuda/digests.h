// Statistics and checksums of tensors that stay on the device, for recording: a kernel makes parts of them, the parts
// travel beside the compute, and threads put them together.
#pragma once
#include <array>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/cuda/device.h"
#include "tensor/value_digest.h"

namespace lockstep::cuda {

class Digests {
 public:
  explicit Digests(Device& device) : device_(device) {}
  ~Digests();  // when all are done
  Digests(const Digests&) = delete;
  Digests& operator=(const Digests&) = delete;

  // Null where the device cannot: a dtype of its own, or no memory for it.
  std::shared_ptr<PendingDigest> add(const Tensor& tensor);

 private:
  class Result;
  struct Slot {  // what one tensor's parts travel through
    void *device = nullptr, *pinned = nullptr;
    size_t bytes = 0;
    Event made = nullptr, copied = nullptr;
  };
  struct Job {
    std::shared_ptr<Result> result;
    Slot* slot;
    DType dtype;
    size_t bytes;
    bool whole;  // the values themselves
  };
  struct Recent {
    std::weak_ptr<Storage> storage;
    uint64_t version = 0;
    int64_t offset = 0;
    size_t bytes = 0;
    DType dtype{};
    std::shared_ptr<Result> result;
  };
  static constexpr size_t kRecent = 16;
  std::shared_ptr<Result> find_recent(const Tensor& tensor) const;
  Slot* take(size_t bytes);
  void give(Slot* slot);
  void drop(Slot& slot);
  void start_threads();
  void work();

  Device& device_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::thread> threads_;
  std::array<Recent, kRecent> recent_;
  size_t next_recent_ = 0;
  std::mutex mutex_;  // of all below
  std::condition_variable work_, freed_;
  std::vector<Slot*> free_;
  std::deque<Job> jobs_;
  bool stop_ = false;
};

}  // namespace lockstep::cuda
