#include "backend/cuda/digests.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "tensor/convert.h"

namespace lockstep::cuda {
namespace {

constexpr size_t kFewBytes = size_t{64} << 10;  // so few travel as they are
constexpr size_t kSlots = 48, kSmallestSlot = size_t{256} << 10, kThreads = 6;
constexpr int kCopiesOut = 3;  // the stream
constexpr int kSleeping = 2;   // kind of event

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
  const ValueDigest& wait() override {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return digest_ || !failure_.empty(); });
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
  std::mutex mutex_;
  std::condition_variable ready_;
  std::optional<ValueDigest> digest_;
  std::string failure_;
};

Digests::~Digests() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (const auto& slot : slots_) drop(*slot);
}

void Digests::drop(Slot& slot) {
  const Leaf& leaf = device_.leaf();
  if (slot.device) device_.release_bytes(slot.device, slot.bytes);
  if (slot.pinned) leaf.release_pinned(device_.context(), slot.pinned);
  for (const Event event : {slot.made, slot.copied})
    if (event) leaf.destroy_event(device_.context(), event);
  slot = {};
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

// A slot that nothing travels through, of at least so many bytes. Null without memory for one.
Digests::Slot* Digests::take(size_t bytes) {
  Slot* slot = nullptr;
  if (slots_.size() < kSlots) {
    slot = slots_.emplace_back(std::make_unique<Slot>()).get();
  } else {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [this] { return !free_.empty(); });
    // The smallest that is large enough, else the largest.
    std::ranges::sort(free_, {}, &Slot::bytes);
    auto found = std::ranges::lower_bound(free_, bytes, {}, &Slot::bytes);
    if (found == free_.end()) --found;
    slot = *found;
    free_.erase(found);
  }
  if (slot->bytes >= bytes) return slot;
  drop(*slot);
  const Leaf& leaf = device_.leaf();
  try {
    const size_t wanted = std::bit_ceil(std::max(bytes, kSmallestSlot));
    slot->device = device_.allocate_bytes(wanted);
    slot->bytes = wanted;
    device_.check(leaf.allocate_pinned(device_.context(), wanted, &slot->pinned), "record");
    for (Event* event : {&slot->made, &slot->copied})
      device_.check(leaf.create_event(device_.context(), kSleeping, event), "record");
    return slot;
  } catch (const Error&) {
    drop(*slot);
    give(slot);
    return nullptr;
  }
}

void Digests::give(Slot* slot) {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(slot);
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
  Slot* slot = take(travels);
  if (!slot) return nullptr;
  const Leaf& leaf = device_.leaf();
  const Context context = device_.context();
  const Stream compute = leaf.stream(context, 0), out = leaf.stream(context, kCopiesOut);
  try {
    const View view = device_.view(tensor, "record");
    const auto normal = static_cast<float>(smallest_normal(dtype));
    const bool made = device_.try_issue("record", {&tensor}, {}, tensor.numel(), [&](Stream stream) {
      // Few values are sent in order with the compute, before anything else is written there.
      return whole ? leaf.copy(context, slot->pinned, view.data, bytes, stream)
                   : leaf.digest(&view, normal, slot->device, stream);
    });
    if (!made) {
      give(slot);
      return nullptr;
    }
    if (!whole) {
      device_.check(leaf.record(context, slot->made, compute), "record");
      device_.check(leaf.wait_event(context, out, slot->made), "record");
      device_.check(leaf.copy(context, slot->pinned, slot->device, travels, out), "record");
    }
    device_.check(leaf.record(context, slot->copied, whole ? compute : out), "record");
  } catch (...) {
    give(slot);
    throw;
  }
  auto result = std::make_shared<Result>();
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({result, slot, dtype, bytes, whole});
  }
  work_.notify_one();
  recent_[next_recent_++ % kRecent] = {
      tensor.storage(), device_.version(tensor), tensor.offset_bytes(), bytes, dtype, result};
  return result;
}

void Digests::work() {
  const Leaf& leaf = device_.leaf();
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    std::optional<ValueDigest> digest;
    std::string failure;
    try {
      const auto* from = static_cast<const std::byte*>(job.slot->pinned);
      if (leaf.wait_event_on_host(device_.context(), job.slot->copied) != Outcome::kDone)
        failure = leaf.message();
      else if (job.whole)
        digest.emplace().values.assign(from, from + job.bytes);
      else
        digest = put_together(from, job.dtype, job.bytes);
    } catch (const std::exception& error) {
      failure = error.what();
    }
    if (!digest && failure.empty()) failure = "no reason was given";
    job.result->set(std::move(digest), std::move(failure));
    give(job.slot);
  }
}

}  // namespace lockstep::cuda
