#include "diagnose/attention/attention_mask.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace lockstep {

bool MaskFormula::hides_something() const {
  return order != Order::kAny || hidden_first || hidden_last || padded || padded_front || hidden_count ||
         !hidden_keys.empty() || window || block || stride || streams != SeenStreams::kBoth || inverted;
}

bool is_hidden(const MaskFormula& m, const JointTokens& tokens, int64_t query, int64_t key) {
  if (m.transposed) std::swap(query, key);
  const bool same = tokens.is_first(query) == tokens.is_first(key);
  const auto hidden = [&] {
    if (m.streams != SeenStreams::kBoth && same == (m.streams == SeenStreams::kOther)) return true;
    if (key >= m.hidden_from && key < m.hidden_from + m.hidden_count) return true;
    if (!m.hidden_keys.empty() && std::binary_search(m.hidden_keys.begin(), m.hidden_keys.end(), key)) return true;
    if (key < m.hidden_first || key >= tokens.all - m.hidden_last) return true;
    if (tokens.is_first(key) && (key >= tokens.first_stream - m.padded || key < m.padded_front)) return true;
    if (m.own_order && !same) return false;
    if (m.window && std::abs(key - query) >= m.window) return true;
    if (m.block) {
      const int64_t start = m.own_order && !tokens.is_first(key) ? tokens.first_stream : 0;
      if ((key - start) / m.block != (query - start) / m.block) return true;
    }
    if (m.stride && (key - query) % m.stride) return true;
    if (key < m.prefix) return false;
    return (m.order == Order::kCausal && key > query + m.diagonal) ||
           (m.order == Order::kReverse && key < query - m.diagonal);
  };
  return hidden() != m.inverted;
}

}  // namespace lockstep
