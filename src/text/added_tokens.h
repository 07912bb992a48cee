// Tokens that are cut out of the text before anything else looks at it, special or not.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct AddedToken {
  std::string content;
  int64_t id = 0;
  bool normalized = false;  // looked for in the normalised text rather than in the text as given
  bool special = false;     // no part in encoding
};

// Finds, leftmost and then longest, the next of a set of strings.
class TokenMatcher {
 public:
  struct Match {
    size_t begin, end;
    int32_t id;
  };

  void add(std::string_view content, int32_t id);
  bool empty() const { return nodes_.empty(); }
  // The first match at or after `from`; begin == text.size() when there is none.
  Match find(std::string_view text, size_t from) const;

 private:
  struct Node {  // a trie, siblings linked
    unsigned char byte = 0;
    int32_t id = -1;
    uint32_t child = 0, sibling = 0;  // 0: none
  };
  uint32_t child_of(uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;
  std::array<bool, 256> starts_{};
  int start_kinds_ = 0;
};

}  // namespace lockstep
