// Host memory to the device and back, through pinned memory: from plain memory the driver copies by itself, one thread
// and nothing beside it.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "backend/cuda/leaf.h"

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

 private:
  struct Piece {
    std::byte* data = nullptr;
    Event copied = nullptr;
  };
  struct Failure {
    Outcome outcome = Outcome::kDone;
    std::string message;
  };
  void prepare();
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
};

// A copy by all threads; `from` may be a mapped file's.
void copy_by_threads(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace lockstep::cuda
