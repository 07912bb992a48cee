#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

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

constexpr size_t kKept = 1 << 16;
constexpr uint32_t kNobody = UINT32_MAX;

// Rank, then place: the order in which pairs are merged.
uint64_t candidate(uint32_t rank, uint32_t at) {
  return static_cast<uint64_t>(rank) << 32 | at;
}

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

// A heap of candidate pairs over a linked list: n log n, however long the piece. A candidate is out of date, and
// ignored, when the pair at its place has another rank by then.
void Bpe::merge_long(std::vector<int32_t>& out) {
  const size_t count = ids_.size();
  if (count >= kNobody) fail(Code::kMemory, "tokenizer", "a piece of text is longer than 4 GB");
  symbols_.resize(count);
  heap_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    const Merges::Result pair = last ? Merges::Result{} : merges_.find(ids_[i], ids_[i + 1]);
    symbols_[i] = {ids_[i], i == 0 ? kNobody : i - 1, last ? kNobody : i + 1, pair};
    if (pair.rank != Merges::kNone) heap_.push_back(candidate(pair.rank, i));
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  const auto renew = [this](uint32_t at) {
    Symbol& symbol = symbols_[at];
    symbol.pair = symbol.next == kNobody ? Merges::Result{} : merges_.find(symbol.id, symbols_[symbol.next].id);
    if (symbol.pair.rank == Merges::kNone) return;
    heap_.push_back(candidate(symbol.pair.rank, at));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(heap_.back() >> 32), at = static_cast<uint32_t>(heap_.back());
    heap_.pop_back();
    Symbol& left = symbols_[at];
    if (left.pair.rank != rank) continue;
    Symbol& right = symbols_[left.next];
    right.pair = {};
    left.id = left.pair.id;
    left.next = right.next;
    if (left.next != kNobody) symbols_[left.next].previous = at;
    renew(at);
    if (left.previous != kNobody) renew(left.previous);
  }
  for (uint32_t at = 0; at != kNobody; at = symbols_[at].next) out.push_back(symbols_[at].id);
  if (count > kKept) {  // one giant piece must not hold its memory for the rest of the text
    symbols_ = {};
    heap_ = {};
  }
}

}  // namespace lockstep
