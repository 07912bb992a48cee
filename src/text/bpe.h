// Byte pair encoding of one piece: the pair of neighbours with the lowest rank is merged, leftmost first, until no pair
// has one.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep {

class Merges {
 public:
  explicit Merges(size_t pairs);

  struct Result {
    uint32_t rank = kNone;  // lower is merged first
    int32_t id = -1;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  void add(int32_t left, int32_t right, Result result);  // a pair given twice keeps the later rank
  Result find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t at = index_of(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.key == key) return slot.result;
      if (slot.key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    uint64_t key = kEmpty;
    Result result;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t index_of(uint64_t key) const { return (key * 0x9E3779B97F4A7C15ull) >> shift_; }

  std::vector<Slot> slots_;  // at most two thirds full
  size_t mask_ = 0;
  int shift_ = 0;
};

// Room that is used again from piece to piece.
class Bpe {
 public:
  // `byte_ids`: the id of each byte, -1 when the vocabulary has none; such bytes vanish, as in the official tokenizer.
  Bpe(const Merges& merges, const std::array<int32_t, 256>& byte_ids) : merges_(merges), byte_ids_(byte_ids) {}

  void encode(std::string_view piece, std::vector<int32_t>& out);

 private:
  void merge_short(std::vector<int32_t>& out);
  void merge_long(std::vector<int32_t>& out);

  const Merges& merges_;
  const std::array<int32_t, 256>& byte_ids_;
  std::vector<int32_t> ids_;
  std::vector<Merges::Result> pairs_;
  struct Symbol {
    int32_t id;
    uint32_t previous, next;
    Merges::Result pair;  // with the next symbol
  };
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> heap_;
};

}  // namespace lockstep
