#include "diagnose/weight/weight_nearness.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

namespace lockstep {
namespace {

constexpr size_t kNeighbourSteps = 3;  // parts of a path by which neighbours differ: "to_out.0.weight", "to_k.weight"

std::vector<std::string> path_of(const std::string& name) {
  std::vector<std::string> out(1);
  for (const char c : name)
    if (c == '.')
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

bool is_number(const std::string& part) {
  return !part.empty() && part.size() < 9 && part.find_first_not_of("0123456789") == std::string::npos;
}

// How far apart in number, where nothing but numbers differs; -1: something else does.
int64_t blocks_apart(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  if (a.size() != b.size()) return -1;
  int64_t apart = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    if (!is_number(a[i]) || !is_number(b[i])) return -1;
    apart += std::abs(std::stoll(a[i]) - std::stoll(b[i]));
  }
  return apart;
}

}  // namespace

void sort_by_nearness(std::vector<std::string>& names, const std::string& own) {
  using Key = std::tuple<int, int64_t>;
  const std::vector<std::string> mine = path_of(own);
  std::vector<std::pair<Key, std::string>> keyed;
  for (const std::string& name : names) {
    const std::vector<std::string> path = path_of(name);
    const auto [end, ignored] = std::mismatch(mine.begin(), mine.end(), path.begin(), path.end());
    const size_t shared = static_cast<size_t>(end - mine.begin()), steps = std::max(mine.size(), path.size()) - shared;
    const int64_t apart = blocks_apart(mine, path);
    const Key key = steps <= kNeighbourSteps ? Key{0, static_cast<int64_t>(steps)}
                    : apart >= 0             ? Key{1, apart}
                                             : Key{2, static_cast<int64_t>(steps)};
    keyed.emplace_back(key, name);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < names.size(); ++i) names[i] = std::move(keyed[i].second);
}

}  // namespace lockstep
