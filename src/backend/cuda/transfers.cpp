#include "backend/cuda/transfers.h"

#include <omp.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/platform/memory_maps.h"

namespace lockstep::cuda {
namespace {

// Small enough for all of them to stay in the processor's cache between being filled and being sent, large enough for
// the bus.
constexpr size_t kPieceBytes = size_t{512} << 10;
constexpr size_t kPiecesAThread = 4;
constexpr size_t kWorthOpening = size_t{4} << 20;  // bytes of a tensor whose file is worth opening again
constexpr int kMostThreads = 32;
constexpr size_t kSmallBytes = size_t{64} << 10, kSmallPieces = 64;

void read_bytes(const MappedReader& file, const std::byte* from, size_t bytes, std::byte* to) {
  if (file.read({from, bytes}, to)) return;
  fetch_pages(from, bytes);
  std::memcpy(to, from, bytes);
}

int threads_for(size_t pieces) {
  return static_cast<int>(
      std::clamp<size_t>(pieces, 1, static_cast<size_t>(std::min(omp_get_max_threads(), kMostThreads))));
}

}  // namespace

void copy_by_threads(std::byte* to, const std::byte* from, size_t bytes) {
  const MappedReader file(bytes >= kWorthOpening ? from : nullptr);
  const int64_t pieces = static_cast<int64_t>((bytes + kPieceBytes - 1) / kPieceBytes);
#pragma omp parallel for schedule(dynamic) num_threads(threads_for(bytes / kPieceBytes))
  for (int64_t i = 0; i < pieces; ++i) {
    const size_t at = static_cast<size_t>(i) * kPieceBytes;
    read_bytes(file, from + at, std::min(kPieceBytes, bytes - at), to + at);
  }
}

// Pieces of a tensor that threads take one after the other.
struct Transfers::Later {
  Later(Tensor source, Tensor target, std::byte* address, Stream on)
      : from(std::move(source)),
        to(std::move(target)),
        file(from.bytes() >= kWorthOpening ? from.contiguous_bytes().data() : nullptr),
        data(from.contiguous_bytes().data()),
        address(address),
        stream(on),
        pieces((from.bytes() + kPieceBytes - 1) / kPieceBytes) {}
  Tensor from, to;
  MappedReader file;
  const std::byte* data;
  std::byte* address;
  Stream stream;
  size_t pieces, taken = 0, sent = 0;
};

Transfers::~Transfers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (const std::vector<Piece>* pieces : {&pieces_, &small_})
    for (const Piece& piece : *pieces) leaf_.destroy_event(context_, piece.copied);
  if (pinned_) leaf_.release_pinned(context_, pinned_);
}

void Transfers::report(const Failure& failure, const char* operation) const {
  if (failure.outcome == Outcome::kNoMemory)
    fail(Code::kMemory, operation, "no pinned memory for " + place_, {.got = failure.message});
  fail(Code::kDevice, operation, place_ + " failed",
       {.got = failure.message, .hint = "nvidia-smi for the state of the device, or --device cpu"});
}

void Transfers::check(Outcome outcome, const char* operation) const {
  if (outcome != Outcome::kDone) report(failure_of(outcome), operation);
}

void Transfers::prepare() {
  if (!pieces_.empty()) return;
  const size_t threads = static_cast<size_t>(threads_for(kMostThreads)), count = threads * kPiecesAThread;
  if (!pinned_)
    check(leaf_.allocate_pinned(context_, count * kPieceBytes + kSmallPieces * kSmallBytes, &pinned_), "upload");
  std::byte* data = static_cast<std::byte*>(pinned_);
  const auto make = [&](size_t number, size_t bytes) {
    std::vector<Piece> made(number);
    for (Piece& piece : made) {
      piece.data = std::exchange(data, data + bytes);
      check(leaf_.create_event(context_, 0, &piece.copied), "upload");
    }
    return made;
  };
  std::vector<Piece> large = make(count, kPieceBytes);
  small_ = make(kSmallPieces, kSmallBytes);
  pieces_ = std::move(large);
  turns_.assign(threads, 0);
}

// Each thread fills pieces of its own and sends them itself, so that reading never waits for the bus.
void Transfers::send(const std::byte* from, std::byte* to, size_t bytes, Stream stream) {
  prepare();
  // A bias between two large weights would wait for the first of them in a piece that carries it.
  if (bytes <= kSmallBytes) {
    const Piece& piece = small_[next_small_++ % kSmallPieces];
    check(leaf_.wait_event_on_host(context_, piece.copied), "upload");
    std::memcpy(piece.data, from, bytes);
    check(leaf_.copy(context_, to, piece.data, bytes, stream), "upload");
    return check(leaf_.record(context_, piece.copied, stream), "upload");
  }
  finish();  // the pieces are the same
  const MappedReader file(bytes >= kWorthOpening ? from : nullptr);
  const int64_t count = static_cast<int64_t>((bytes + kPieceBytes - 1) / kPieceBytes);
  const int threads = std::min(threads_for(static_cast<size_t>(count)), static_cast<int>(turns_.size()));
  Failure failure;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int64_t i = 0; i < count; ++i) {
    const size_t at = static_cast<size_t>(i) * kPieceBytes;
    const Failure one = send_piece(file, from + at, to + at, std::min(kPieceBytes, bytes - at),
                                   static_cast<size_t>(omp_get_thread_num()), stream);
    if (one.outcome != Outcome::kDone) {
#pragma omp critical(lockstep_transfers)
      failure = one;
    }
  }
  if (failure.outcome != Outcome::kDone) report(failure, "upload");
}

Transfers::Failure Transfers::send_piece(const MappedReader& file, const std::byte* from, std::byte* to, size_t bytes,
                                         size_t thread, Stream stream) {
  const Piece& piece = pieces_[thread * kPiecesAThread + turns_[thread]++ % kPiecesAThread];
  Outcome outcome = leaf_.wait_event_on_host(context_, piece.copied);
  if (outcome == Outcome::kDone) {
    read_bytes(file, from, bytes, piece.data);
    outcome = leaf_.copy(context_, to, piece.data, bytes, stream);
  }
  if (outcome == Outcome::kDone) outcome = leaf_.record(context_, piece.copied, stream);
  return outcome == Outcome::kDone ? Failure{} : failure_of(outcome);
}

void Transfers::start_threads() {
  if (!threads_.empty()) return;
  sigset_t all, before;  // signals are the program's own thread's
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (size_t thread = 0; thread < turns_.size(); ++thread) threads_.emplace_back([this, thread] { work(thread); });
  } catch (const std::exception&) {  // as many as the system gives
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Transfers::work(size_t thread) {
  while (true) {
    std::shared_ptr<Later> later;
    size_t piece = 0;
    {
      std::unique_lock lock(mutex_);
      const auto open = [](const std::shared_ptr<Later>& one) { return one->taken < one->pieces; };
      changed_.wait(lock, [&] { return stop_ || std::ranges::any_of(later_, open); });
      const auto found = std::ranges::find_if(later_, open);
      if (found == later_.end()) return;
      later = *found;
      piece = later->taken++;
    }
    const size_t at = piece * kPieceBytes;
    const Failure failure = send_piece(later->file, later->data + at, later->address + at,
                                       std::min(kPieceBytes, later->from.bytes() - at), thread, later->stream);
    const std::lock_guard lock(mutex_);
    if (failure.outcome != Outcome::kDone) later_failure_ = failure;
    if (++later->sent == later->pieces) changed_.notify_all();
    later.reset();  // never the last: its tensors belong to the caller's thread
  }
}

void Transfers::send_later(const Tensor& from, const Tensor& to, std::byte* address, Stream stream) {
  prepare();
  start_threads();
  if (from.bytes() <= kSmallBytes || threads_.empty())
    return send(from.contiguous_bytes().data(), address, from.bytes(), stream);
  constexpr size_t kMostWaiting = 8;
  wait_for_later(kMostWaiting - 1);
  auto later = std::make_shared<Later>(from, to, address, stream);
  {
    const std::lock_guard lock(mutex_);
    later_.push_back(std::move(later));
  }
  changed_.notify_all();
}

void Transfers::wait_for_later(size_t most) {
  std::unique_lock lock(mutex_);
  const auto done = [](const std::shared_ptr<Later>& one) { return one->sent == one->pieces; };
  changed_.wait(lock, [&] {
    while (!later_.empty() && done(later_.front())) later_.pop_front();
    return later_.size() <= most;
  });
  if (later_failure_.outcome == Outcome::kDone) return;
  const Failure failure = std::exchange(later_failure_, {});
  lock.unlock();
  report(failure, "upload");
}

// All pieces travel at once, and each is copied out as it arrives.
void Transfers::fetch(const std::byte* from, std::byte* to, size_t bytes, Stream stream) {
  prepare();
  finish();
  const size_t window = pieces_.size() * kPieceBytes;
  for (size_t first = 0; first < bytes; first += window) {
    const size_t size = std::min(window, bytes - first);
    const size_t count = (size + kPieceBytes - 1) / kPieceBytes;
    const auto length = [&](size_t i) { return std::min(kPieceBytes, size - i * kPieceBytes); };
    for (size_t i = 0; i < count; ++i) {
      check(leaf_.wait_event_on_host(context_, pieces_[i].copied), "download");
      check(leaf_.copy(context_, pieces_[i].data, from + first + i * kPieceBytes, length(i), stream), "download");
      check(leaf_.record(context_, pieces_[i].copied, stream), "download");
    }
    Failure failure;
#pragma omp parallel for schedule(static, 1) num_threads(threads_for(count))
    for (size_t i = 0; i < count; ++i) {
      const Outcome outcome = leaf_.wait_event_on_host(context_, pieces_[i].copied);
      std::memcpy(to + first + i * kPieceBytes, pieces_[i].data, length(i));
      if (outcome != Outcome::kDone) {
#pragma omp critical(lockstep_transfers)
        failure = failure_of(outcome);
      }
    }
    if (failure.outcome != Outcome::kDone) report(failure, "download");
  }
}

}  // namespace lockstep::cuda
