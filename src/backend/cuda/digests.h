// Statistics and checksums of tensors that stay on the device, for recording: a kernel makes parts of them, the parts
// of many tensors travel together beside the compute, and threads put them together.
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
  explicit Digests(Device& device);
  ~Digests();  // when all are done
  Digests(const Digests&) = delete;
  Digests& operator=(const Digests&) = delete;

  // Null where the device cannot: a dtype of its own, or no memory for it.
  std::shared_ptr<PendingDigest> add(const Tensor& tensor);
  void send();  // what was added so far is on its way; nothing is waiting for more when a capture begins

 private:
  class Result;
  struct Job {
    std::shared_ptr<Result> result;
    DType dtype;
    size_t at, bytes;  // of the chunk; of the tensor
    bool whole;        // the values themselves
  };
  struct Chunk {  // what the parts of several tensors travel through
    void *device = nullptr, *pinned = nullptr;
    size_t bytes = 0, used = 0;
    Event made = nullptr, copied = nullptr;
    std::vector<Job> jobs;
    size_t undone = 0;
  };
  // The chunk that is being filled, shared with the results: whoever waits for one of them sends it. Any thread may.
  struct Open {
    std::mutex mutex;
    Digests* digests = nullptr;  // null when they are gone
    Chunk* chunk = nullptr;
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
  bool make_room(size_t bytes);
  Chunk* take(size_t bytes);
  void give(Chunk* chunk);
  void drop(Chunk& chunk);
  void send_open();
  void start_threads();
  void work();

  Device& device_;
  std::shared_ptr<Open> open_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<std::thread> threads_;
  std::array<Recent, kRecent> recent_;
  size_t next_recent_ = 0;
  std::mutex mutex_;  // of all below
  std::condition_variable work_, freed_;
  std::vector<Chunk*> free_;
  std::deque<Chunk*> travelling_;
  std::deque<std::pair<Chunk*, size_t>> jobs_;  // a chunk that has arrived, and which of its jobs
  bool stop_ = false;
};

}  // namespace lockstep::cuda
