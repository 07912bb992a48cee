#include "text/added_tokens.h"

#include <cstring>

namespace lockstep {

uint32_t TokenMatcher::child_of(uint32_t node, unsigned char byte) const {
  uint32_t child = nodes_[node].child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

void TokenMatcher::add(std::string_view content, int32_t id) {
  if (content.empty()) return;
  if (nodes_.empty()) nodes_.emplace_back();
  const auto first = static_cast<unsigned char>(content[0]);
  if (!starts_[first]) ++start_kinds_;
  starts_[first] = true;
  uint32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t child = child_of(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({byte, -1, 0, nodes_[node].child});
      nodes_[node].child = child;
    }
    node = child;
  }
  nodes_[node].id = id;
}

TokenMatcher::Match TokenMatcher::find(std::string_view text, size_t from) const {
  const Match none{text.size(), text.size(), -1};
  if (nodes_.empty()) return none;
  const bool one_start =
      start_kinds_ == 1;  // as in the real vocabulary, where all start with '<': let memchr run ahead
  const unsigned char only = nodes_[nodes_[0].child].byte;
  for (size_t at = from; at < text.size(); ++at) {
    if (one_start) {
      const void* hit = std::memchr(text.data() + at, only, text.size() - at);
      if (hit == nullptr) return none;
      at = static_cast<size_t>(static_cast<const char*>(hit) - text.data());
    } else if (!starts_[static_cast<unsigned char>(text[at])]) {
      continue;
    }
    Match best = none;
    uint32_t node = 0;
    for (size_t i = at; i < text.size(); ++i) {
      node = child_of(node, static_cast<unsigned char>(text[i]));
      if (node == 0) break;
      if (nodes_[node].id >= 0) best = {at, i + 1, nodes_[node].id};
    }
    if (best.id >= 0) return best;
  }
  return none;
}

}  // namespace lockstep
