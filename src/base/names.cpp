#include "base/names.h"

#include <algorithm>

namespace lockstep {
namespace {

// Matches one character against the set that starts after '['; advances `at` past the closing bracket.
bool match_set(std::string_view pattern, size_t& at, char c) {
  const bool negated = at < pattern.size() && pattern[at] == '!';
  if (negated) ++at;
  bool hit = false;
  while (at < pattern.size() && pattern[at] != ']') {
    if (at + 2 < pattern.size() && pattern[at + 1] == '-' && pattern[at + 2] != ']') {
      hit |= pattern[at] <= c && c <= pattern[at + 2];
      at += 3;
    } else {
      hit |= pattern[at++] == c;
    }
  }
  ++at;
  return hit != negated;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view name) {
  // Iterative with one backtrack point: linear in practice, and no pattern can make it recurse.
  size_t p = 0, n = 0, star = std::string_view::npos, star_n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_n = n;
      continue;
    }
    bool ok = false;
    size_t next = p + 1;
    if (p < pattern.size()) {
      if (pattern[p] == '[')
        ok = match_set(pattern, next, name[n]);
      else
        ok = pattern[p] == '?' || pattern[p] == name[n];
    }
    if (ok) {
      p = next;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++star_n;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> known, size_t most) {
  constexpr size_t kLongestCompared = 256;
  std::vector<std::pair<size_t, std::string>> scored;
  for (const std::string& candidate : known) {
    if (name.size() > kLongestCompared || candidate.size() > kLongestCompared) continue;
    const size_t distance = edit_distance(name, candidate);
    if (distance * 2 <= std::max(name.size(), candidate.size())) scored.emplace_back(distance, candidate);
  }
  std::sort(scored.begin(), scored.end());
  std::vector<std::string> nearest;
  for (size_t i = 0; i < std::min(most, scored.size()); ++i) nearest.push_back(scored[i].second);
  return nearest;
}

}  // namespace lockstep
