#include "diagnose/weight/weight_parts.h"

#include <algorithm>
#include <cmath>

#include "base/interrupt.h"
#include "diagnose/case/thresholds.h"

namespace lockstep {
namespace {

// "blocks.12.attn.q" → ".12": what tells one block's weights from another's.
std::string numbers_in(const std::string& name) {
  std::string out;
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string word = name.substr(begin, end - begin);
    if (!word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; }))
      out += "." + word;
    begin = end + 1;
  }
  return out;
}

bool may_hold(const Shape& large, const Shape& small) {
  return !small.empty() && large.size() == small.size() && large[0] > small[0] && small[0] > 0 &&
         std::equal(small.begin() + 1, small.end(), large.begin() + 1);
}

int64_t begin_of(const Values& small, const Values& large) {
  const int64_t rows = small.shape[0], width = small.size() / rows;
  const std::span<const float> all(large.v), wanted(small.v);
  if (squared_norm(wanted) == 0) return -1;  // zeros are everywhere
  const auto is_near = [&](int64_t at, int64_t i) {
    const double w = wanted[static_cast<size_t>(i)];
    return std::fabs(all[static_cast<size_t>(at * width + i)] - w) <= 8 * kEqualRows * std::fabs(w) + 1e-12;
  };
  for (int64_t at = 0; at + rows <= large.shape[0]; ++at) {
    if (!is_near(at, 0) || !is_near(at, small.size() / 2) || !is_near(at, small.size() - 1)) continue;
    const auto part = all.subspan(static_cast<size_t>(at * width), wanted.size());
    if (relative_error(part, wanted) <= kEqualRows) return at;
  }
  return -1;
}

}  // namespace

std::vector<WeightPart> find_parts(const WeightSource& small_source, const std::vector<std::string>& smalls,
                                   const WeightSource& large_source, const std::vector<std::string>& larges) {
  std::vector<WeightPart> out;
  for (const std::string& large : larges) {
    std::optional<Values> whole;
    for (const std::string& small : smalls) {
      check_interrupt("weights compare");
      const Shape& shape = small_source.shapes().at(small);
      if (numbers_in(small) != numbers_in(large) || !may_hold(large_source.shapes().at(large), shape)) continue;
      if (!whole) whole = large_source.find(large);
      const auto part = small_source.find(small);
      if (!whole || !part) continue;
      if (const int64_t begin = begin_of(*part, *whole); begin >= 0)
        out.push_back({small, large, begin, begin + shape[0]});
    }
  }
  return out;
}

}  // namespace lockstep
