#include "compare/name_evidence.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace lockstep {
namespace {

bool is_number(const std::string& segment) {
  return !segment.empty() && segment.find_first_not_of("0123456789") == std::string::npos;
}

// "toQProj_2" → {to, q, proj}
std::set<std::string> segment_words(const std::string& segment) {
  std::set<std::string> out;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) out.insert(word);
    word.clear();
  };
  for (const char c : segment) {
    const bool upper = c >= 'A' && c <= 'Z', letter = upper || (c >= 'a' && c <= 'z');
    if (upper || !letter) end_word();
    if (letter) word += upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  end_word();
  return out;
}

// "layers" and "layer", "norm" and "normed" are nearly one word.
double word_likeness(const std::string& a, const std::string& b) {
  constexpr size_t kLeastStem = 4;
  if (a == b) return 1;
  const std::string &shorter = a.size() < b.size() ? a : b, &longer = a.size() < b.size() ? b : a;
  return shorter.size() >= kLeastStem && longer.starts_with(shorter) ? 0.8 : 0;
}

double shared_words(const std::string& a, const std::string& b) {
  const std::set<std::string> x = segment_words(a), y = segment_words(b);
  if (x.empty() || y.empty()) return 0;
  double common = 0;
  for (const std::string& word : x) {
    double best = 0;
    for (const std::string& other : y) best = std::max(best, word_likeness(word, other));
    common += best;
  }
  return common / static_cast<double>(std::max(x.size(), y.size()));
}

// The segments that say something: "to_out.0" ends in to_out.
std::vector<std::string> worded(const std::vector<std::string>& segments) {
  std::vector<std::string> out;
  for (const std::string& segment : segments)
    if (!is_number(segment)) out.push_back(segment);
  return out;
}

size_t common_suffix(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  size_t count = 0;
  while (count < a.size() && count < b.size() && a[a.size() - 1 - count] == b[b.size() - 1 - count]) ++count;
  return count;
}

std::string prefix_of(const std::vector<std::string>& segments, size_t suffix) {
  std::string out;
  for (size_t i = 0; i + suffix < segments.size(); ++i) out += (i ? "." : "") + segments[i];
  return out;
}

}  // namespace

double name_likeness(const PairingNode& r, const PairingNode& c) {
  if (r.segments == c.segments) return 6;
  const std::vector<std::string> a = worded(r.segments), b = worded(c.segments);
  double score = 0;
  const size_t suffix = common_suffix(a, b);
  score += suffix == 0 ? 0 : suffix == 1 ? 1.5 : suffix == 2 ? 2.5 : 3.2;
  if (suffix == 0 && !a.empty() && !b.empty()) score += 1.2 * shared_words(a.back(), b.back());
  if (suffix < a.size() && suffix < b.size())
    score += 0.6 * shared_words(a[a.size() - 1 - suffix], b[b.size() - 1 - suffix]);
  // The block's number; names that end in a number of their own (fc1, norm_2) must agree in it too.
  if (!r.numbers.empty() && !c.numbers.empty())
    score += r.numbers == c.numbers ? 1 : r.numbers[0] == c.numbers[0] ? 0.5 : -3;
  return score;
}

void LearnedNames::learn(const PairingNode& r, const PairingNode& c) {
  auto& examples = by_patterns_[{r.pattern, c.pattern}];
  constexpr size_t kMostExamples = 64;
  if (examples.size() < kMostExamples) examples.push_back({r.numbers, c.numbers});
  ++patterns_of_[c.pattern][r.pattern];
  if (const size_t suffix = common_suffix(r.segments, c.segments); suffix > 0)
    ++prefixes_[{prefix_of(r.segments, suffix), prefix_of(c.segments, suffix)}];
}

// The reference's numbers move with the candidate's: what is 3 beside 3 is 5 beside 5, and what is 0 beside 3 stays.
bool LearnedNames::follows(const Example& example, const Numbers& reference, const Numbers& candidate) {
  std::vector<bool> used(candidate.size());
  for (size_t i = 0; i < reference.size(); ++i) {
    size_t link = candidate.size();
    for (size_t j = 0; j < candidate.size() && link == candidate.size(); ++j)
      if (!used[j] &&
          (example.candidate[j] == example.reference[i] || (reference.size() == candidate.size() && i == j)))
        link = j;
    const int64_t moved = reference[i] - example.reference[i];
    if (link == candidate.size() ? moved != 0 : moved != candidate[link] - example.candidate[link]) return false;
    if (link < candidate.size()) used[link] = true;
  }
  for (size_t j = 0; j < candidate.size(); ++j)
    if (!used[j] && candidate[j] != example.candidate[j]) return false;
  return true;
}

double LearnedNames::support(const PairingNode& r, const PairingNode& c) const {
  double score = 0;
  if (const auto found = by_patterns_.find({r.pattern, c.pattern}); found != by_patterns_.end()) {
    const auto agreeing = std::count_if(found->second.begin(), found->second.end(),
                                        [&](const Example& example) { return follows(example, r.numbers, c.numbers); });
    if (agreeing > 0)
      score = 2.5 + std::min(2.5, std::log2(1.0 + static_cast<double>(agreeing)));
    else
      score = -2;
  } else if (const auto known = patterns_of_.find(c.pattern); known != patterns_of_.end() && !c.numbers.empty()) {
    score = -2;  // its kind has a partner of another name in other blocks
  }
  if (const size_t suffix = common_suffix(r.segments, c.segments); suffix > 0) {
    const auto found = prefixes_.find({prefix_of(r.segments, suffix), prefix_of(c.segments, suffix)});
    if (found != prefixes_.end())
      score = std::max(score, 0.0) + 1.5 + std::min(3.0, std::log2(1.0 + static_cast<double>(found->second)));
  }
  return score;
}

}  // namespace lockstep
