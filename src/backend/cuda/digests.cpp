#include "backend/cuda/digests.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "tensor/convert.h"

namespace lockstep::cuda {
namespace {

constexpr size_t kFewBytes = size_t{64} << 10;  // so few travel as they are
constexpr size_t kChunks = 8, kChunkBytes = size_t{16} << 20, kAlignment = 256, kThreads = 6;
constexpr auto kPatience = std::chrono::milliseconds(1);  // until who waits sends what others may still add to
constexpr int kCopiesOut = 3;                             // the stream
constexpr int kSleeping = 2;                              // kind of event

ValueDigest put_together(const std::byte* result, DType dtype, size_t bytes) {
  const DigestLayout layout = digest_layout(bytes);
  const size_t item = dtype_bytes(dtype);
  Moments moments;
  const auto* parts = reinterpret_cast<const DigestPart*>(result + layout.parts_at);
  for (int64_t i = 0; i < layout.parts; ++i) {
    const DigestPart& part = parts[i];
    const int64_t blocks = std::min<int64_t>(kDigestBlocksAPart, layout.blocks - i * kDigestBlocksAPart);
    const int64_t count = blocks * kDigestBlock / static_cast<int64_t>(item);
    BlockMoments block{part.sum, part.squares, part.least, part.most, part.zero, part.denormal};
    const int64_t finite = count - part.nan - part.inf;
    Moments one = finite > 0 ? Moments::of_block(block, finite) : Moments();
    one.nan = part.nan;
    one.inf = part.inf;
    moments.merge(one);
  }
  const std::byte* tail = result + layout.tail_at;
  const double normal = smallest_normal(dtype);
  for (size_t at = static_cast<size_t>(layout.blocks) * kDigestBlock; at < bytes; at += item)
    moments.add(element_as_double(tail + (at - layout.tail_begin), dtype), normal);
  const size_t blocks = checksum_blocks(bytes);
  ValueDigest made;
  made.stats = moments.statistics();
  made.checksum = checksum_from_sums({reinterpret_cast<const uint64_t*>(result), blocks * kChecksumLanes},
                                     {tail, layout.tail_bytes}, bytes);
  made.first.assign(result + layout.head_at, result + layout.head_at + kDigestHead);
  return made;
}

}  // namespace

class Digests::Result final : public PendingDigest {
 public:
  explicit Result(std::shared_ptr<Open> open) : open_(std::move(open)) {}
  const ValueDigest& wait() override {
    std::unique_lock lock(mutex_);
    const auto known = [this] { return digest_ || !failure_.empty(); };
    if (!ready_.wait_for(lock, kPatience, known)) {
      lock.unlock();
      {
        const std::lock_guard open(open_->mutex);
        if (open_->digests) open_->digests->send_open();
      }
      lock.lock();
      ready_.wait(lock, known);
    }
    if (!digest_) fail(Code::kDevice, "record", "no statistics from the device", {.got = failure_});
    return *digest_;
  }
  void set(std::optional<ValueDigest> digest, std::string failure) {
    {
      const std::lock_guard lock(mutex_);
      digest_ = std::move(digest);
      failure_ = std::move(failure);
    }
    ready_.notify_all();
  }

 private:
  std::shared_ptr<Open> open_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::optional<ValueDigest> digest_;
  std::string failure_;
};

Digests::Digests(Device& device) : device_(device), open_(std::make_shared<Open>()) {
  open_->digests = this;
}

Digests::~Digests() {
  {
    const std::lock_guard open(open_->mutex);
    send_open();
    open_->digests = nullptr;
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (const auto& chunk : chunks_) drop(*chunk);
}

void Digests::drop(Chunk& chunk) {
  const Leaf& leaf = device_.leaf();
  if (chunk.device) device_.release_bytes(chunk.device, chunk.bytes);
  if (chunk.pinned) leaf.release_pinned(device_.context(), chunk.pinned);
  for (const Event event : {chunk.made, chunk.copied})
    if (event) leaf.destroy_event(device_.context(), event);
  chunk = {};
}

void Digests::start_threads() {
  if (!threads_.empty()) return;
  sigset_t all, before;  // signals are the program's own thread's
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    while (threads_.size() < kThreads) threads_.emplace_back([this] { work(); });
  } catch (const std::exception&) {  // as many as the system gives
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// A chunk that nothing travels through, of at least so many bytes. Null without memory for one.
Digests::Chunk* Digests::take(size_t bytes) {
  Chunk* chunk = nullptr;
  if (chunks_.size() < kChunks) {
    chunk = chunks_.emplace_back(std::make_unique<Chunk>()).get();
  } else {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [this] { return !free_.empty(); });
    // The smallest that is large enough, else the largest.
    std::ranges::sort(free_, {}, &Chunk::bytes);
    auto found = std::ranges::lower_bound(free_, bytes, {}, &Chunk::bytes);
    if (found == free_.end()) --found;
    chunk = *found;
    free_.erase(found);
  }
  if (chunk->bytes >= bytes) return chunk;
  drop(*chunk);
  const Leaf& leaf = device_.leaf();
  try {
    const size_t wanted = std::bit_ceil(std::max(bytes, kChunkBytes));
    chunk->device = device_.allocate_bytes(wanted);
    chunk->bytes = wanted;
    device_.check(leaf.allocate_pinned(device_.context(), wanted, &chunk->pinned), "record");
    for (Event* event : {&chunk->made, &chunk->copied})
      device_.check(leaf.create_event(device_.context(), kSleeping, event), "record");
    return chunk;
  } catch (const Error&) {
    drop(*chunk);
    give(chunk);
    return nullptr;
  }
}

void Digests::give(Chunk* chunk) {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(chunk);
  }
  freed_.notify_one();
}

// What comes out of one module mostly goes into the next, and into several of them.
std::shared_ptr<Digests::Result> Digests::find_recent(const Tensor& tensor) const {
  for (const Recent& one : recent_) {
    const bool same = one.result && !one.storage.owner_before(tensor.storage()) &&
                      !tensor.storage().owner_before(one.storage) && one.version == device_.version(tensor) &&
                      one.offset == tensor.offset_bytes() && one.bytes == tensor.bytes() && one.dtype == tensor.dtype();
    if (same) return one.result;
  }
  return nullptr;
}

void Digests::send() {
  const std::lock_guard open(open_->mutex);
  send_open();
}

// With the open chunk's mutex held. Nothing is thrown: the results say what went wrong.
void Digests::send_open() {
  Chunk* chunk = std::exchange(open_->chunk, nullptr);
  if (!chunk) return;
  const Leaf& leaf = device_.leaf();
  const Context context = device_.context();
  const Stream compute = leaf.stream(context, 0), out = leaf.stream(context, kCopiesOut);
  Outcome outcome = leaf.record(context, chunk->made, compute);
  if (outcome == Outcome::kDone) outcome = leaf.wait_event(context, out, chunk->made);
  if (outcome == Outcome::kDone) outcome = leaf.copy(context, chunk->pinned, chunk->device, chunk->used, out);
  if (outcome == Outcome::kDone) outcome = leaf.record(context, chunk->copied, out);
  if (outcome != Outcome::kDone) {
    for (const Job& job : chunk->jobs) job.result->set(std::nullopt, leaf.message());
    chunk->jobs.clear();
    chunk->used = 0;
    return give(chunk);
  }
  {
    const std::lock_guard lock(mutex_);
    travelling_.push_back(chunk);
  }
  work_.notify_one();
}

// With the open chunk's mutex held: room for so many more bytes in it. False without memory.
bool Digests::make_room(size_t bytes) {
  if (open_->chunk && open_->chunk->used + bytes <= open_->chunk->bytes) return true;
  send_open();
  open_->chunk = take(bytes);
  return open_->chunk != nullptr;
}

std::shared_ptr<PendingDigest> Digests::add(const Tensor& tensor) {
  const DType dtype = tensor.dtype();
  const size_t bytes = tensor.bytes();
  const bool whole = bytes <= kFewBytes;
  const bool floats = dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
  if (bytes == 0 || !tensor.is_contiguous() || (!whole && !floats)) return nullptr;
  device_.settle_all();  // what was put off may be this tensor's values
  if (const std::shared_ptr<Result> known = find_recent(tensor)) return known;
  start_threads();
  if (threads_.empty()) return nullptr;
  const size_t travels = whole ? bytes : digest_layout(bytes).total;
  const size_t room = (travels + kAlignment - 1) / kAlignment * kAlignment;
  const Leaf& leaf = device_.leaf();
  const std::lock_guard open(open_->mutex);
  if (!make_room(room)) return nullptr;
  Chunk& chunk = *open_->chunk;
  const View view = device_.view(tensor, "record");
  std::byte* to = static_cast<std::byte*>(chunk.device) + chunk.used;
  const auto normal = static_cast<float>(smallest_normal(dtype));
  const bool made = device_.try_issue("record", {&tensor}, {}, tensor.numel(), [&](Stream stream) {
    return whole ? leaf.copy(device_.context(), to, view.data, bytes, stream) : leaf.digest(&view, normal, to, stream);
  });
  if (!made) return nullptr;
  auto result = std::make_shared<Result>(open_);
  chunk.jobs.push_back({result, dtype, chunk.used, bytes, whole});
  chunk.used += room;
  recent_[next_recent_++ % kRecent] = {
      tensor.storage(), device_.version(tensor), tensor.offset_bytes(), bytes, dtype, result};
  return result;
}

void Digests::work() {
  const Leaf& leaf = device_.leaf();
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stop_ || !jobs_.empty() || !travelling_.empty(); });
    if (!jobs_.empty()) {
      const auto [chunk, index] = jobs_.front();
      jobs_.pop_front();
      lock.unlock();
      Job job = std::move(chunk->jobs[index]);
      std::optional<ValueDigest> digest;
      std::string failure;
      try {
        const auto* from = static_cast<const std::byte*>(chunk->pinned) + job.at;
        if (job.whole)
          digest.emplace().values.assign(from, from + job.bytes);
        else
          digest = put_together(from, job.dtype, job.bytes);
      } catch (const std::exception& error) {
        digest.reset();
        failure = error.what();
      }
      if (!digest && failure.empty()) failure = "no reason was given";
      job.result->set(std::move(digest), std::move(failure));
      job = {};
      lock.lock();
      if (--chunk->undone == 0) {
        chunk->jobs.clear();
        chunk->used = 0;
        free_.push_back(chunk);
        freed_.notify_one();
      }
    } else if (!travelling_.empty()) {
      Chunk* chunk = travelling_.front();
      travelling_.pop_front();
      lock.unlock();
      const Outcome outcome = leaf.wait_event_on_host(device_.context(), chunk->copied);
      const std::string failure = outcome == Outcome::kDone ? "" : leaf.message();
      if (outcome != Outcome::kDone)
        for (Job& job : chunk->jobs) std::exchange(job, {}).result->set(std::nullopt, failure);
      lock.lock();
      chunk->undone = outcome == Outcome::kDone ? chunk->jobs.size() : 0;
      for (size_t i = 0; i < chunk->undone; ++i) jobs_.emplace_back(chunk, i);
      if (chunk->undone == 0) {
        chunk->jobs.clear();
        chunk->used = 0;
        free_.push_back(chunk);
        freed_.notify_one();
      }
      work_.notify_all();
    } else {
      return;  // stopped, and all is done
    }
  }
}

}  // namespace lockstep::cuda
