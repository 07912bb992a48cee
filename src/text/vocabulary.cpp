#include "text/vocabulary.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace lockstep {
namespace {

// Ids may have gaps, but a small file must not ask for a large table.
constexpr size_t kFreeIds = 1 << 20, kIdsPerToken = 4;
constexpr size_t kMaxTextBytes = 1u << 30;

}  // namespace

Vocabulary::Vocabulary(size_t tokens, size_t text_bytes) {
  slots_.resize(std::bit_ceil(std::max<size_t>(64, tokens + tokens / 2)));
  entries_.reserve(tokens);
  text_.reserve(std::min(text_bytes, kMaxTextBytes));
  id_limit_ = kFreeIds + tokens * kIdsPerToken;
}

size_t Vocabulary::slot_of(std::string_view token, uint32_t& tag) const {
  const uint64_t hash = XXH3_64bits(token.data(), token.size());
  tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at].id >= 0) {
    if (slots_[at].tag == tag && this->token(slots_[at].id) == token) break;
    at = (at + 1) & mask;
  }
  return at;
}

void Vocabulary::grow() {
  slots_.assign(slots_.size() * 2, {});
  for (int32_t id = 0; id < end_id(); ++id) {
    if (!contains(id)) continue;
    uint32_t tag;
    const size_t at = slot_of(token(id), tag);
    slots_[at] = {tag, id};
  }
}

void Vocabulary::add(std::string_view token, int64_t id) {
  if (id < 0 || static_cast<size_t>(id) >= id_limit_)
    fail(Code::kCorrupt, "tokenizer", fmt::format("the id of token \"{}\" is out of range", token),
         {.expected = fmt::format("0 to {}", id_limit_ - 1), .got = std::to_string(id)});
  uint32_t tag;
  const size_t at = slot_of(token, tag);
  if (slots_[at].id >= 0) {
    if (slots_[at].id == id) return;
    fail(Code::kCorrupt, "tokenizer", fmt::format("the token \"{}\" has two ids, {} and {}", token, slots_[at].id, id));
  }
  const auto index = static_cast<size_t>(id);
  if (index >= entries_.size()) entries_.resize(index + 1);
  if (entries_[index].length != kAbsent)
    fail(Code::kCorrupt, "tokenizer",
         fmt::format("the id {} belongs to two tokens, \"{}\" and \"{}\"", id, this->token(static_cast<int32_t>(id)),
                     token));
  if (text_.size() + token.size() > kMaxTextBytes) fail(Code::kCorrupt, "tokenizer", "the tokens are too long in all");
  entries_[index] = {static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(token.size())};
  text_.append(token);
  slots_[at] = {tag, static_cast<int32_t>(id)};
  if (++count_ * 3 > slots_.size() * 2) grow();
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  uint32_t tag;
  const Slot& slot = slots_[slot_of(token, tag)];
  if (slot.id < 0) return std::nullopt;
  return slot.id;
}

bool Vocabulary::contains(int32_t id) const {
  return id >= 0 && id < end_id() && entries_[static_cast<size_t>(id)].length != kAbsent;
}

std::string_view Vocabulary::token(int32_t id) const {
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return std::string_view(text_).substr(entry.offset, entry.length);
}

}  // namespace lockstep
