// Host memory to the device and back, through pinned memory: from plain memory the driver copies by itself, one thread
// and nothing beside it.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/leaf.h"
#include "base/mapped_reader.h"
#include "tensor/tensor.h"

namespace lockstep::cuda {

class Transfers {
 public:
  Transfers(const Leaf& leaf, Context context, std::string place)
      : leaf_(leaf), context_(context), place_(std::move(place)) {}
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // `from` has been read when it returns; what is put on the stream afterwards finds it in `to`.
  void send(const std::byte* from, std::byte* to, size_t bytes, Stream stream);
  void fetch(const std::byte* from, std::byte* to, size_t bytes, Stream stream);  // waits for it

  // The same as send, but threads do it while the caller goes on, with the next weight for example. Both tensors are
  // kept until finish(), which returns when all is on the stream: nothing else may be put there before.
  void send_later(const Tensor& from, const Tensor& to, std::byte* address, Stream stream);
  void finish() {
    if (!later_.empty()) wait_for_later(0);
  }

 private:
  struct Piece {
    std::byte* data = nullptr;
    Event copied = nullptr;
  };
  struct Failure {
    Outcome outcome = Outcome::kDone;
    std::string message;
  };
  struct Later;
  void prepare();
  Failure send_piece(const MappedReader& file, const std::byte* from, std::byte* to, size_t bytes, size_t thread,
                     Stream stream);
  void start_threads();
  void work(size_t thread);
  void wait_for_later(size_t most);  // until no more of them are left
  void check(Outcome outcome, const char* operation) const;
  [[noreturn]] void report(const Failure& failure, const char* operation) const;
  Failure failure_of(Outcome outcome) const { return {outcome, leaf_.message()}; }

  const Leaf& leaf_;
  Context context_;
  std::string place_;
  void* pinned_ = nullptr;
  std::vector<Piece> pieces_;  // a few for each thread
  std::vector<size_t> turns_;  // which of its pieces a thread takes next
  std::vector<Piece> small_;   // for tensors that fit one of them, in turn
  size_t next_small_ = 0;

  std::vector<std::thread> threads_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Later>> later_;  // in order; those that are done leave in the caller's thread
  Failure later_failure_;
  bool stop_ = false;
};

// A copy by all threads; `from` may be a mapped file's.
void copy_by_threads(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace lockstep::cuda
