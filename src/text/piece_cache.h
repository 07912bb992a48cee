// Pieces that one call of encode has met. Text repeats itself, and the ids of a piece already lie in the output: an
// entry points there, so that the cache stores nothing and costs nothing to fill.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace lockstep {

class PieceCache {
 public:
  static constexpr size_t kMaxBytes = 64;

  struct Entry {
    const char* piece = nullptr;
    uint32_t bytes = 0, count = 0;
    size_t first = 0;  // ids first ... first + count of the output

    bool matches(std::string_view other) const {
      return bytes == other.size() && std::memcmp(piece, other.data(), bytes) == 0;
    }
    void set(std::string_view of, size_t first_id, size_t id_count) {
      piece = of.data();
      bytes = static_cast<uint32_t>(of.size());
      first = first_id;
      count = static_cast<uint32_t>(id_count);
    }
  };

  explicit PieceCache(size_t text_bytes)
      : entries_(std::bit_ceil(std::min<size_t>(std::max<size_t>(text_bytes / 8, 16), kMaxEntries))),
        shift_(64 - std::countr_zero(entries_.size())) {}

  // The one place where `piece` may be; what was there before is replaced.
  Entry& entry(std::string_view piece) { return entries_[hash(piece) >> shift_]; }

 private:
  static constexpr size_t kMaxEntries = 1 << 16;

  static uint64_t hash(std::string_view piece) {
    constexpr uint64_t kFactor = 0x9E3779B97F4A7C15ull;
    uint64_t value = piece.size();
    const char* at = piece.data();
    size_t left = piece.size();
    for (; left >= 8; at += 8, left -= 8) {
      uint64_t word;
      std::memcpy(&word, at, 8);
      value = (value ^ word) * kFactor;
      value ^= value >> 32;
    }
    uint64_t word = 0;
    for (size_t i = 0; i < left; ++i) word = word << 8 | static_cast<unsigned char>(at[i]);
    return (value ^ word) * kFactor;
  }

  std::vector<Entry> entries_;
  int shift_;
};

}  // namespace lockstep
