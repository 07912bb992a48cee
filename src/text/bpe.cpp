#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "base/error.h"

namespace lockstep {

Merges::Merges(size_t pairs) {
  const size_t slots = std::bit_ceil(std::max<size_t>(16, pairs + pairs / 2));
  slots_.resize(slots);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
}

void Merges::add(int32_t left, int32_t right, Result result) {
  const uint64_t key = key_of(left, right);
  size_t at = index_of(key);
  while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & mask_;
  slots_[at] = {key, result};
}

namespace {

constexpr size_t kShort = 48;  // symbols up to which looking at every pair beats a heap

struct Symbol {
  int32_t id;
  uint32_t previous, next;  // kNobody at the ends
};
constexpr uint32_t kNobody = UINT32_MAX;

struct Candidate {
  uint32_t rank, at;  // the pair that starts at symbol `at`
  int32_t id;
  bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
};

}  // namespace

void Bpe::encode(std::string_view piece, std::vector<int32_t>& out) {
  ids_.clear();
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id >= 0) ids_.push_back(id);
  }
  if (ids_.size() < 2) {
    out.insert(out.end(), ids_.begin(), ids_.end());
  } else if (ids_.size() <= kShort) {
    merge_short(out);
  } else {
    merge_long(out);
  }
}

void Bpe::merge_short(std::vector<int32_t>& out) {
  size_t count = ids_.size();
  pairs_.resize(count);  // pairs_[i]: what ids_[i] and ids_[i + 1] merge into
  for (size_t i = 0; i + 1 < count; ++i) pairs_[i] = merges_.find(ids_[i], ids_[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (pairs_[i].rank < pairs_[best].rank) best = i;
    if (pairs_[best].rank == Merges::kNone) break;
    ids_[best] = pairs_[best].id;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      ids_[i] = ids_[i + 1];
      pairs_[i] = pairs_[i + 1];
    }
    if (best > 0) pairs_[best - 1] = merges_.find(ids_[best - 1], ids_[best]);
    if (best + 1 < count) pairs_[best] = merges_.find(ids_[best], ids_[best + 1]);
  }
  out.insert(out.end(), ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(count));
}

// A heap of candidate pairs over a linked list: n log n, however long the piece.
void Bpe::merge_long(std::vector<int32_t>& out) {
  const size_t count = ids_.size();
  if (count >= kNobody) fail(Code::kMemory, "tokenizer", "a piece of text is longer than 4 GB");
  std::vector<Symbol> symbols(count);
  std::vector<Candidate> found;
  for (uint32_t i = 0; i < count; ++i)
    symbols[i] = {ids_[i], i == 0 ? kNobody : i - 1, i + 1 == count ? kNobody : i + 1};
  for (uint32_t i = 0; i + 1 < count; ++i) {
    const Merges::Result pair = merges_.find(ids_[i], ids_[i + 1]);
    if (pair.rank != Merges::kNone) found.push_back({pair.rank, i, pair.id});
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap({}, std::move(found));
  const auto offer = [&](uint32_t at) {
    const Merges::Result pair = merges_.find(symbols[at].id, symbols[symbols[at].next].id);
    if (pair.rank != Merges::kNone) heap.push({pair.rank, at, pair.id});
  };
  while (!heap.empty()) {
    const Candidate top = heap.top();
    heap.pop();
    Symbol& left = symbols[top.at];
    if (left.id < 0 || left.next == kNobody) continue;                            // merged away since
    if (merges_.find(left.id, symbols[left.next].id).rank != top.rank) continue;  // another pair by now
    left.id = top.id;
    symbols[left.next].id = -1;
    left.next = symbols[left.next].next;
    if (left.next != kNobody) {
      symbols[left.next].previous = top.at;
      offer(top.at);
    }
    if (left.previous != kNobody) offer(left.previous);
  }
  for (uint32_t at = 0; at != kNobody; at = symbols[at].next) out.push_back(symbols[at].id);
}

}  // namespace lockstep
