// Token strings and their ids, both ways, in three flat arrays: 150 thousand entries have to be ready in milliseconds.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Vocabulary {
 public:
  Vocabulary(size_t tokens, size_t text_bytes);  // expected amounts

  // A token that is there with another id, and an id that is there with another token, are errors.
  void add(std::string_view token, int64_t id);
  std::optional<int32_t> find(std::string_view token) const;
  bool contains(int32_t id) const;
  std::string_view token(int32_t id) const;  // of an id that it contains
  size_t size() const { return count_; }
  int32_t end_id() const { return static_cast<int32_t>(entries_.size()); }  // one more than the largest id

 private:
  struct Entry {
    uint32_t offset = 0, length = kAbsent;
  };
  struct Slot {
    uint32_t tag = 0;  // high bits of the hash, to compare before the string is touched
    int32_t id = -1;
  };
  static constexpr uint32_t kAbsent = UINT32_MAX;

  size_t slot_of(std::string_view token, uint32_t& tag) const;
  void grow();

  std::string text_;
  std::vector<Entry> entries_;  // by id
  std::vector<Slot> slots_;     // open addressing, a power of two
  size_t count_ = 0;
  size_t id_limit_ = 0;
};

}  // namespace lockstep
