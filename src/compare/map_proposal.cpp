#include "compare/map_proposal.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/interrupt.h"
#include "compare/values.h"

namespace lockstep {
namespace {

constexpr size_t kMostNames = 1500;               // on each side; the table of the alignment is their product
constexpr int64_t kMostElements = 1 << 22;        // of a tensor whose content is looked at
constexpr double kEqual = 1e-3, kSimilar = 0.15;  // distances of sketches
constexpr double kGap = 0.45;                     // a name without a partner costs this

// What no order of axes changes.
struct Sketch {
  double rms = 0, mean = 0, absolute = 0, largest = 0;
};

struct Name {
  std::string name;
  bool input = false;
  size_t record = 0;
  Shape axes;  // without axes of 1, sorted
  std::optional<Sketch> sketch;
};

Sketch sketch_of(const Values& x) {
  Sketch out;
  for (const float value : x.v) {
    const double v = value, a = std::fabs(v);
    out.rms += v * v, out.mean += v, out.absolute += a, out.largest = std::max(out.largest, a);
  }
  const double n = static_cast<double>(std::max<int64_t>(1, x.size()));
  out.rms = std::sqrt(out.rms / n), out.mean /= n, out.absolute /= n;
  return out;
}

double distance(const Sketch& a, const Sketch& b) {
  const double scale = std::max(a.rms, b.rms);
  if (!(scale > 0)) return 0;
  const double d =
      std::max({std::fabs(a.rms - b.rms), std::fabs(a.mean - b.mean), std::fabs(a.absolute - b.absolute)}) / scale;
  const double top = std::max(a.largest, b.largest);
  return std::max(d, 0.3 * std::fabs(a.largest - b.largest) / top);
}

std::vector<Name> names_of(const RunView& run, const std::vector<size_t>& records) {
  std::vector<Name> out;
  std::set<std::pair<std::string, bool>> seen, contents;
  for (const size_t i : records) {
    const RecordedTensor& record = run.records[i];
    const bool input = record.role == Role::kInput;
    if (out.size() >= kMostNames || !seen.emplace(record.key.name, input).second) continue;
    // A parent that hands on what its child made is no tensor of its own.
    if (!record.checksum.empty() && !contents.emplace(record.checksum, input).second) continue;
    check_interrupt("map");
    Name next{record.key.name, input, i, {}, std::nullopt};
    for (const int64_t size : record.shape)
      if (size != 1) next.axes.push_back(size);
    std::sort(next.axes.begin(), next.axes.end());
    if (record.load && is_floating(record.dtype) && checked_numel(record.shape) <= kMostElements)
      next.sketch = sketch_of(values_from(record.load()));
    out.push_back(std::move(next));
  }
  return out;
}

// 0: surely the same; infinity: cannot be.
double cost(const Name& r, const Name& c) {
  if (r.input != c.input) return INFINITY;
  const auto count = [](const Shape& axes) {
    return std::accumulate(axes.begin(), axes.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; });
  };
  if (count(r.axes) != count(c.axes)) return INFINITY;
  const double shape = r.axes == c.axes ? 0 : 0.1;
  if (!r.sketch || !c.sketch) return 0.4 + shape;
  const double d = distance(*r.sketch, *c.sketch);
  return shape + (d < kEqual ? 0 : d < kSimilar ? 0.2 : 0.7);
}

// The cheapest way to walk both lists side by side, in order.
std::vector<std::pair<size_t, size_t>> aligned(const std::vector<Name>& r, const std::vector<Name>& c) {
  const size_t width = c.size() + 1;
  std::vector<float> best((r.size() + 1) * width);
  for (size_t i = 0; i <= r.size(); ++i)
    for (size_t j = 0; j <= c.size(); ++j) {
      if (i == 0 || j == 0) {
        best[i * width + j] = static_cast<float>(kGap * static_cast<double>(i + j));
        continue;
      }
      const double both = best[(i - 1) * width + j - 1] + cost(r[i - 1], c[j - 1]);
      const double skip = kGap + std::min(best[(i - 1) * width + j], best[i * width + j - 1]);
      best[i * width + j] = static_cast<float>(std::min(both, skip));
    }
  std::vector<std::pair<size_t, size_t>> out;
  for (size_t i = r.size(), j = c.size(); i > 0 && j > 0;) {
    const double here = best[i * width + j];
    // Of several that are as good the earliest: the layer itself, not the parents that hand its result on.
    if (std::fabs(here - (kGap + best[(i - 1) * width + j])) < 1e-4)
      --i;
    else if (std::fabs(here - (best[(i - 1) * width + j - 1] + cost(r[i - 1], c[j - 1]))) < 1e-4)
      out.emplace_back(--i, --j);
    else
      --j;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

// What is left over on both sides may have been recorded in another order: equal content, and no other that is.
void add_out_of_order(const std::vector<Name>& r, const std::vector<Name>& c,
                      std::vector<std::pair<size_t, size_t>>& pairs) {
  std::set<size_t> used_r, used_c;
  for (const auto& [i, j] : pairs) used_r.insert(i), used_c.insert(j);
  for (size_t j = 0; j < c.size(); ++j) {
    if (used_c.contains(j) || !c[j].sketch || c[j].sketch->rms == 0) continue;
    size_t found = r.size();
    for (size_t i = 0; i < r.size() && found == r.size(); ++i)
      if (!used_r.contains(i) && r[i].sketch && cost(r[i], c[j]) == 0) found = i;
    if (found == r.size()) continue;
    used_r.insert(found);
    pairs.emplace_back(found, j);
  }
  std::sort(pairs.begin(), pairs.end());
}

// The order of the candidate's axes that gives the reference's tensor; empty when none is needed or none does.
std::vector<int> axis_order(const RecordedTensor& r, const RecordedTensor& c) {
  std::vector<int> axes(c.shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (r.shape == c.shape || r.shape.size() != c.shape.size() || axes.size() > 5 || !r.load || !c.load) return {};
  const Values expected = values_from(r.load()), own = values_from(c.load());
  do {
    const Values moved = permuted(own, axes);
    if (moved.shape == expected.shape && relative_error(moved.v, expected.v) < 0.3) return axes;
  } while (std::next_permutation(axes.begin(), axes.end()));
  return {};
}

bool ends_a_word(char c) {
  return c == '.' || c == '_' || c == '/' || c == '-' || c == '[' || c == ']';
}

// "blocks.12.attn" → "blocks.*.attn" and {"12"}. A number behind a word (layer12) is an index too where the names count
// with it: 0, 1, 2 ... That fc1 and fc2 end in numbers does not make them two of one kind.
class Patterns {
 public:
  void add(const std::vector<Name>& names) {
    for (const Name& each : names)
      for_each_number(each.name, [&](size_t begin, size_t end) {
        if (const std::string word = word_before(each.name, begin); !word.empty())
          counted_[word].insert(each.name.substr(begin, end - begin));
      });
  }
  std::pair<std::string, std::vector<std::string>> generalised(const std::string& name) const {
    std::string pattern;
    std::vector<std::string> numbers;
    size_t done = 0;
    for_each_number(name, [&](size_t begin, size_t end) {
      if (const std::string word = word_before(name, begin); !word.empty() && !is_counted(word)) return;
      pattern += name.substr(done, begin - done) + "*";
      numbers.push_back(name.substr(begin, end - begin));
      done = end;
    });
    return {pattern + name.substr(done), numbers};
  }

 private:
  // Numbers that end a word.
  template <typename Function>
  static void for_each_number(const std::string& name, Function&& use) {
    for (size_t i = 0; i < name.size();) {
      size_t end = i;
      while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
      if (end > i && (end == name.size() || ends_a_word(name[end]))) use(i, end);
      i = std::max(end, i + 1);
    }
  }
  static std::string word_before(const std::string& name, size_t end) {
    size_t begin = end;
    while (begin > 0 && !ends_a_word(name[begin - 1])) --begin;
    return name.substr(begin, end - begin);
  }
  bool is_counted(const std::string& word) const {
    const auto found = counted_.find(word);
    if (found == counted_.end()) return false;
    return found->second.size() > 4 || (found->second.size() > 2 && found->second.contains("0"));
  }
  std::map<std::string, std::set<std::string>> counted_;
};

// The pattern with the numbers that do not vary put back: "blocks.*.mlp.*" → "blocks.*.mlp.2".
std::string with_numbers(const std::string& pattern, const std::vector<std::string>& numbers,
                         const std::vector<bool>& stars) {
  std::string out;
  size_t star = 0;
  for (const char c : pattern) {
    if (c != '*') {
      out += c;
      continue;
    }
    out += stars[star] ? "*" : numbers[star];
    ++star;
  }
  return out;
}

// One block's pair, told as patterns: what layers.0.ff is in block 0, layers.7.ff is in block 7.
struct Example {
  std::vector<std::string> numbers;
  std::string pattern;
  std::vector<std::string> reference_numbers;
};
using Examples = std::map<std::string, std::vector<Example>>;  // by the candidate's pattern

// The name in the reference that `example` gives a name with these numbers.
std::string named_like(const Example& example, const std::vector<std::string>& numbers) {
  std::vector<std::string> expected = example.reference_numbers;
  for (std::string& number : expected)
    for (size_t k = 0; k < numbers.size(); ++k)
      if (number == example.numbers[k] && numbers[k] != example.numbers[k]) {
        number = numbers[k];
        break;
      }
  return with_numbers(example.pattern, expected, std::vector<bool>(expected.size(), false));
}

// Pairs that are not sure yet are made as the examples say.
void pair_like(const Examples& examples, const Patterns& patterns, const std::vector<Name>& r,
               const std::vector<Name>& c, std::set<size_t>& sure_r, std::set<size_t>& sure_c,
               std::vector<std::pair<size_t, size_t>>& pairs) {
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < r.size(); ++i)
    if (!r[i].input) by_name.emplace(r[i].name, i);
  for (size_t j = 0; j < c.size(); ++j) {
    if (sure_c.contains(j)) continue;
    const auto [pattern, numbers] = patterns.generalised(c[j].name);
    const auto found = examples.find(pattern);
    if (found == examples.end() || numbers.empty()) continue;
    // The nearest first: of layers.1.mlp.0 and layers.1.mlp.2 the one with the same number behind the block's.
    std::vector<Example> nearest = found->second;
    const auto apart = [&of = numbers](const Example& example) {
      size_t out = 0;
      for (size_t k = 0; k < of.size(); ++k) out += example.numbers[k] != of[k];
      return out;
    };
    std::stable_sort(nearest.begin(), nearest.end(),
                     [&](const Example& a, const Example& b) { return apart(a) < apart(b); });
    for (const Example& example : nearest) {
      const auto target = by_name.find(named_like(example, numbers));
      if (target == by_name.end() || sure_r.contains(target->second) || std::isinf(cost(r[target->second], c[j])))
        continue;
      std::erase_if(pairs, [&, j](const auto& pair) { return pair.first == target->second || pair.second == j; });
      pairs.emplace_back(target->second, j);
      sure_r.insert(target->second), sure_c.insert(j);
      break;
    }
  }
  std::sort(pairs.begin(), pairs.end());
}

// Blocks that were right teach those that came after the bug; where none was right, what most of them are is what all
// are.
void learn_from_blocks(const Patterns& patterns, const std::vector<Name>& r, const std::vector<Name>& c,
                       std::vector<std::pair<size_t, size_t>>& pairs) {
  constexpr size_t kLeastBlocks = 3;
  Examples equal;
  std::map<std::string, std::map<std::string, std::vector<Example>>> others;  // by both patterns
  std::set<size_t> sure_r, sure_c;
  for (const auto& [i, j] : pairs) {
    const auto [pattern, numbers] = patterns.generalised(c[j].name);
    const auto [of, reference_numbers] = patterns.generalised(r[i].name);
    if (r[i].sketch && c[j].sketch && cost(r[i], c[j]) == 0) {
      sure_r.insert(i), sure_c.insert(j);
      equal[pattern].push_back({numbers, of, reference_numbers});
    } else {
      others[pattern][of].push_back({numbers, of, reference_numbers});
    }
  }
  pair_like(equal, patterns, r, c, sure_r, sure_c, pairs);
  Examples usual;
  for (const auto& [pattern, by_reference] : others) {
    if (equal.contains(pattern)) continue;
    size_t all = 0;
    for (const auto& [of, examples] : by_reference) all += examples.size();
    for (const auto& [of, examples] : by_reference)
      if (examples.size() >= kLeastBlocks && 2 * examples.size() > all) usual[pattern] = examples;
  }
  pair_like(usual, patterns, r, c, sure_r, sure_c, pairs);
}

// Which of the names' numbers are not the same in all of them.
std::vector<bool> varying(const std::vector<std::vector<std::string>>& numbers) {
  std::vector<bool> out(numbers[0].size());
  for (const auto& each : numbers)
    for (size_t i = 0; i < out.size(); ++i) out[i] = out[i] || each[i] != numbers[0][i];
  return out;
}

std::vector<std::string> chosen(const std::vector<std::string>& numbers, const std::vector<bool>& which) {
  std::vector<std::string> out;
  for (size_t i = 0; i < numbers.size(); ++i)
    if (which[i]) out.push_back(numbers[i]);
  return out;
}

// Blocks that repeat make one rule, where every one of them agrees.
std::vector<ProposedRule> with_blocks_as_one(const Patterns& patterns, const std::vector<ProposedRule>& single) {
  std::map<std::pair<std::string, std::string>, std::vector<size_t>> groups;  // both patterns → rules
  std::map<std::string, std::set<std::string>> targets;
  for (size_t i = 0; i < single.size(); ++i) {
    const std::string from = patterns.generalised(single[i].rule.candidate).first,
                      to = patterns.generalised(single[i].rule.reference).first;
    groups[{from, to}].push_back(i);
    targets[from].insert(to);
  }
  std::vector<ProposedRule> out;
  for (size_t i = 0; i < single.size(); ++i) {
    const std::string from = patterns.generalised(single[i].rule.candidate).first,
                      to = patterns.generalised(single[i].rule.reference).first;
    const std::vector<size_t>& members = groups[{from, to}];
    std::vector<std::vector<std::string>> of_candidate, of_reference;
    for (const size_t member : members) {
      of_candidate.push_back(patterns.generalised(single[member].rule.candidate).second);
      of_reference.push_back(patterns.generalised(single[member].rule.reference).second);
    }
    const std::vector<bool> stars_c = varying(of_candidate), stars_r = varying(of_reference);
    bool general = members.size() > 1 && targets[from].size() == 1;
    for (size_t member = 0; member < members.size(); ++member)
      general = general && chosen(of_candidate[member], stars_c) == chosen(of_reference[member], stars_r);
    if (!general) {
      out.push_back(single[i]);
    } else if (members[0] == i) {
      ProposedRule& rule = out.emplace_back(single[i]);
      rule.rule.candidate = with_numbers(from, of_candidate[0], stars_c);
      rule.rule.reference = with_numbers(to, of_reference[0], stars_r);
      rule.tensors = members.size();
    }
  }
  return out;
}

}  // namespace

std::vector<ProposedRule> propose_map(const RunView& reference, const RunView& candidate,
                                      const std::vector<MapRule>& map, const std::string& only_glob) {
  const Pairing pairing = pair_runs(reference, candidate, map, only_glob);
  const std::vector<Name> r = names_of(reference, pairing.only_reference),
                          c = names_of(candidate, pairing.only_candidate);
  std::vector<std::pair<size_t, size_t>> pairs = aligned(r, c);
  add_out_of_order(r, c, pairs);
  Patterns patterns;
  patterns.add(r);
  patterns.add(c);
  learn_from_blocks(patterns, r, c, pairs);
  std::vector<ProposedRule> single;
  for (const auto& [i, j] : pairs) {
    if (r[i].name == c[j].name) continue;
    const bool known = r[i].sketch && c[j].sketch;
    const double d = known ? distance(*r[i].sketch, *c[j].sketch) : INFINITY;
    const bool repeated = std::any_of(single.begin(), single.end(), [&, name = c[j].name](const ProposedRule& rule) {
      return rule.rule.candidate == name;  // its input is named the same
    });
    if (repeated) continue;
    single.push_back(
        {{c[j].name, r[i].name, axis_order(reference.records[r[i].record], candidate.records[c[j].record]), {}, {}, {}},
         d < kEqual     ? "equal content"
         : d < kSimilar ? "similar content"
                        : "order and shape",
         1});
  }
  return with_blocks_as_one(patterns, single);
}

Json json_from(const std::vector<ProposedRule>& proposal) {
  Json rules = Json::array();
  for (const ProposedRule& each : proposal) {
    Json rule{{"candidate", each.rule.candidate}, {"reference", each.rule.reference}};
    if (!each.rule.permute.empty()) rule["permute"] = each.rule.permute;
    rule["why"] = each.why;
    rule["names"] = each.tensors;
    rules.push_back(std::move(rule));
  }
  return Json{{"rules", std::move(rules)}};
}

}  // namespace lockstep
