#include "compare/pairing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/names.h"
#include "compare/call_alignment.h"
#include "compare/likeness.h"
#include "compare/pictures.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

// "why" and "names" are what a proposal says of itself.
constexpr std::array<std::string_view, 9> kRuleFields{"candidate", "reference", "permute", "slice", "reshape",
                                                      "dtype",     "role",      "why",     "names"};

// An input never answers an output; a checkpoint, a variable and an output may.
bool is_input(const RecordedTensor& record) {
  return record.role == Role::kInput;
}

// What goes into a module's call or comes out of it; else it was named by hand.
bool is_call_side(const RecordedTensor& record) {
  return record.role == Role::kInput || record.role == Role::kOutput;
}

std::string normal_name(const RecordedTensor& record, const std::vector<MapRule>& map, int& rule) {
  for (size_t i = 0; i < map.size(); ++i) {
    if (map[i].input && is_call_side(record) && *map[i].input != is_input(record)) continue;
    if (auto name = mapped_name(map[i], record.key.name)) {
      rule = static_cast<int>(i);
      return *name;
    }
  }
  return record.key.name;
}

// Whether it answers inputs of the reference.
bool answers_input(const RecordedTensor& record, const std::vector<MapRule>& map, int rule) {
  if (rule >= 0 && map[static_cast<size_t>(rule)].input) return *map[static_cast<size_t>(rule)].input;
  return is_input(record);
}

// "steps 0 to 2, pass=cond, pass=uncond": which calls these records are.
std::string calls_of(const RunView& run, const std::vector<size_t>& records) {
  int low = INT_MAX, high = INT_MIN;
  std::set<std::string> tags;
  for (const size_t i : records) {
    const TensorKey& key = run.records[i].key;
    low = std::min(low, key.step), high = std::max(high, key.step);
    for (const auto& [name, value] : key.tags) tags.insert(name + "=" + value);
  }
  std::string out = high < 0     ? "no step"
                    : low < 0    ? fmt::format("steps up to {}", high)
                    : low < high ? fmt::format("steps {} to {}", low, high)
                                 : fmt::format("step {}", low);
  if (tags.empty()) return out + ", no pass";
  for (const std::string& tag : tags) out += ", " + tag;
  return out;
}

// A map is written by hand: what it says must be understood, or it is refused.
template <typename T>
T field_of(const Json& rule, const char* name, const char* expected) {
  try {
    return rule.at(name).get<T>();
  } catch (const Json::exception&) {
    fail(Code::kBadInput, "map", fmt::format("\"{}\" of a rule cannot be read", name),
         {.expected = expected, .got = rule.dump()});
  }
}

}  // namespace

std::vector<MapRule> read_map(const fs::path& file) {
  const Json document = read_json(file);
  std::vector<MapRule> out;
  if (document.is_object() && document.contains("ranks") && !document.contains("rules")) return out;
  if (!document.is_object() || !document.contains("rules") || !document["rules"].is_array())
    fail(Code::kBadInput, "map", "no rules in " + file.string(), {.expected = R"({"rules": [...]})"});
  for (const Json& rule : document["rules"]) {
    if (!rule.is_object() || !rule.contains("candidate") || !rule.contains("reference") ||
        !rule["candidate"].is_string() || !rule["reference"].is_string())
      fail(Code::kBadInput, "map", "a rule without names",
           {.expected = R"("candidate" and "reference")", .got = rule.dump()});
    MapRule next{rule["candidate"].get<std::string>(), rule["reference"].get<std::string>(), {}, {}, {}, {}, {}};
    for (const auto& [key, value] : rule.items())
      if (std::find(kRuleFields.begin(), kRuleFields.end(), key) == kRuleFields.end())
        fail(Code::kBadInput, "map", fmt::format("a rule has the unknown field \"{}\"", key),
             {.expected = "candidate, reference, permute, slice, reshape, dtype or role", .got = rule.dump()});
    for (const char wild : {'*', '#'})
      if (std::count(next.reference.begin(), next.reference.end(), wild) >
          std::count(next.candidate.begin(), next.candidate.end(), wild))
        fail(Code::kBadInput, "map",
             fmt::format("{} has more {} than {}", next.reference, wild == '*' ? "stars" : "numbers", next.candidate),
             {.expected = fmt::format("a {} of the candidate for each of the reference", wild)});
    if (rule.contains("role")) {
      if (rule["role"] != "input" && rule["role"] != "output")
        fail(Code::kBadInput, "map", "an unknown role",
             {.expected = "\"input\" or \"output\"", .got = rule["role"].dump()});
      next.input = rule["role"] == "input";
    }
    if (rule.contains("permute"))
      next.permute = field_of<std::vector<int>>(rule, "permute", "axes of the candidate, such as [0, 3, 1, 2]");
    if (rule.contains("slice")) next.slice = field_of<std::vector<int64_t>>(rule, "slice", "[axis, begin, end]");
    if (rule.contains("reshape")) next.reshape = field_of<Shape>(rule, "reshape", "a shape, such as [1, 16, 64]");
    if (rule.contains("dtype")) {
      next.dtype = rule["dtype"].is_string() ? dtype_from_name(rule["dtype"].get<std::string>()) : std::nullopt;
      if (!next.dtype)
        fail(Code::kBadInput, "map", "an unknown dtype", {.expected = "such as \"bf16\"", .got = rule["dtype"].dump()});
    }
    if (!next.slice.empty() && next.slice.size() != 3)
      fail(Code::kBadInput, "map", "a slice is [axis, begin, end]", {.got = rule["slice"].dump()});
    out.push_back(std::move(next));
  }
  return out;
}

std::optional<std::string> mapped_name(const MapRule& rule, const std::string& name) {
  // Backtracking over the stars, shortest match first; names are short. A number is taken whole.
  std::vector<std::pair<char, std::string>> captured;
  const std::string& pattern = rule.candidate;
  const auto is_digit = [&](size_t at) { return at < name.size() && name[at] >= '0' && name[at] <= '9'; };
  const auto match = [&](auto&& self, size_t p, size_t n) -> bool {
    if (p == pattern.size()) return n == name.size();
    if (pattern[p] == '#') {
      size_t end = n;
      while (is_digit(end)) ++end;
      if (end == n) return false;
      captured.emplace_back('#', name.substr(n, end - n));
      if (self(self, p + 1, end)) return true;
      captured.pop_back();
      return false;
    }
    if (pattern[p] != '*') return n < name.size() && pattern[p] == name[n] && self(self, p + 1, n + 1);
    for (size_t length = 0; n + length <= name.size(); ++length) {
      captured.emplace_back('*', name.substr(n, length));
      if (self(self, p + 1, n + length)) return true;
      captured.pop_back();
    }
    return false;
  };
  if (!match(match, 0, 0)) return std::nullopt;
  std::string out;
  std::map<char, size_t> next;
  for (const char c : rule.reference) {
    if (c != '*' && c != '#') {
      out += c;
      continue;
    }
    for (size_t& k = next[c]; k < captured.size(); ++k)
      if (captured[k].first == c) {
        out += captured[k++].second;
        break;
      }
  }
  return out;
}

namespace {

Tensor moved_by(const MapRule& rule, const Tensor& tensor) {
  Tensor out = tensor;
  if (!rule.slice.empty()) out = out.slice(static_cast<int>(rule.slice[0]), rule.slice[1], rule.slice[2]);
  if (!rule.permute.empty()) out = out.permute(rule.permute);
  if (rule.reshape) out = out.contiguous().reshape(*rule.reshape);
  return out;
}

}  // namespace

Tensor apply_rule(const MapRule& rule, const Tensor& tensor) {
  Tensor out;
  try {
    out = moved_by(rule, tensor);
  } catch (const Error& error) {
    fail(Code::kBadInput, "map",
         fmt::format("the rule for {} does not fit {}: {}", rule.candidate, to_string(tensor.shape()), error.what()));
  }
  if (rule.dtype && *rule.dtype != out.dtype()) {
    const Tensor packed = out.contiguous();
    Tensor rounded = Tensor::empty(*rule.dtype, out.shape());
    convert_elements(packed.contiguous_bytes().data(), packed.dtype(), rounded.mutable_strided_data(), *rule.dtype,
                     packed.numel());
    out = rounded;
  }
  return out;
}

namespace {

// A stage of the reference's pipeline that the candidate has no record of is what the next module is given, where the
// reference's two are one tensor: then the candidate's input there answers both, and what made it is told by its name.
void pair_stages_by_their_use(const RunView& reference, const std::vector<int>& rules, std::vector<size_t>& partner,
                              std::vector<std::string>& how) {
  std::map<std::string, size_t> used_next;  // checksum → the next paired input with these values
  for (size_t i = reference.records.size(); i-- > 0;) {
    const RecordedTensor& record = reference.records[i];
    if (record.checksum.empty()) continue;
    const std::string values = record.checksum + to_string(record.shape) + std::string(dtype_name(record.dtype));
    if (partner[i] != SIZE_MAX) {
      if (is_input(record) && rules[partner[i]] >= 0) used_next[values] = i;
    } else if (record.role == Role::kCheckpoint) {
      const auto found = used_next.find(values);
      if (found == used_next.end()) continue;
      partner[i] = partner[found->second];
      how[i] = "as the input of " + reference.records[found->second].key.name;
    }
  }
}

// One name of a porter's own may stand for tensors that have several names in the reference. What the rules leave of
// such names is the tensor that has the same values.
void pair_checkpoints_by_content(const RunView& reference, const RunView& candidate, std::vector<size_t>& partner,
                                 std::vector<std::string>& how, std::vector<bool>& used) {
  constexpr double kEqual = 1e-4, kMeansMuch = 0.3;
  constexpr size_t kMostLooked = 64;  // checkpoints: a program that names more is paired by its names
  LikenessOracle likeness(reference, candidate);
  for (size_t j = 0, looked = 0; j < candidate.records.size() && looked < kMostLooked; ++j) {
    if (used[j] || candidate.records[j].role != Role::kCheckpoint) continue;
    ++looked;
    size_t equal = SIZE_MAX;
    for (size_t i = 0; i < reference.records.size() && equal == SIZE_MAX; ++i) {
      if (partner[i] != SIZE_MAX || is_input(reference.records[i]) ||
          !same_element_count(reference.records[i], candidate.records[j]))
        continue;
      check_interrupt("pairing");
      const Likeness like = likeness.of(i, j);
      if (like.known && like.error < kEqual && like.weight > kMeansMuch && !like.moved) equal = i;
    }
    if (equal == SIZE_MAX) continue;
    partner[equal] = j, how[equal] = "equal content", used[j] = true;
  }
}

// What a program ends in is compared whatever it is called: a match beside another picture would be no match.
void pair_last_pictures(const RunView& reference, const RunView& candidate, std::vector<size_t>& partner,
                        std::vector<std::string>& how, std::vector<bool>& used) {
  const auto last = [](const RunView& run) {
    size_t i = run.records.size();
    while (i > 0 && !shows_a_picture(run.records[i - 1])) --i;
    return i == 0 ? SIZE_MAX : i - 1;
  };
  const size_t r = last(reference), c = last(candidate);
  if (r == SIZE_MAX || c == SIZE_MAX || partner[r] != SIZE_MAX || used[c]) return;
  const RecordedTensor &theirs = reference.records[r], &own = candidate.records[c];
  if (is_floating(theirs.dtype) != is_floating(own.dtype) || !same_element_count(theirs, own)) return;
  partner[r] = c, how[r] = "the last picture of each", used[c] = true;
}

}  // namespace

Pairing pair_runs(const RunView& reference, const RunView& candidate, const std::vector<MapRule>& map,
                  const std::string& only_glob) {
  using Exact = std::tuple<std::string, bool, int, int, Tags>;
  const auto wanted = [&](const std::string& name) { return only_glob.empty() || glob_match(only_glob, name); };
  std::vector<std::string> names(candidate.records.size());
  std::vector<int> rules(candidate.records.size(), -1);
  std::map<Exact, size_t> exact;
  for (size_t i = 0; i < candidate.records.size(); ++i) {
    const RecordedTensor& record = candidate.records[i];
    names[i] = normal_name(record, map, rules[i]);
    exact.try_emplace(
        {names[i], answers_input(record, map, rules[i]), record.key.step, record.key.hit, record.key.tags}, i);
  }
  std::vector<size_t> partner(reference.records.size(), SIZE_MAX);
  std::vector<std::string> how(reference.records.size());
  std::vector<bool> used(candidate.records.size());
  // Under another name calls may be counted otherwise too: where one side has more of them, their values tell first.
  std::map<std::pair<std::string, bool>, std::ptrdiff_t> surplus;
  for (const RecordedTensor& record : reference.records) ++surplus[{record.key.name, is_input(record)}];
  for (size_t i = 0; i < candidate.records.size(); ++i)
    --surplus[{names[i], answers_input(candidate.records[i], map, rules[i])}];
  for (size_t i = 0; i < reference.records.size(); ++i) {
    const TensorKey& key = reference.records[i].key;
    const bool input = is_input(reference.records[i]);
    const auto found = exact.find({key.name, input, key.step, key.hit, key.tags});
    if (found == exact.end() || used[found->second] || !wanted(key.name)) continue;
    if (rules[found->second] >= 0 && surplus[{key.name, input}] != 0) continue;
    partner[i] = found->second, used[found->second] = true;
    if (rules[found->second] >= 0) how[i] = "by the map";
  }
  // What is left: the same name, its calls by content, or in order where both sides have equally many.
  std::map<std::pair<std::string, bool>, NamedCalls> rest;
  for (size_t i = 0; i < reference.records.size(); ++i)
    if (partner[i] == SIZE_MAX && wanted(reference.records[i].key.name))
      rest[{reference.records[i].key.name, is_input(reference.records[i])}].reference.push_back(i);
  for (size_t i = 0; i < candidate.records.size(); ++i)
    if (!used[i] && wanted(names[i]))
      rest[{names[i], answers_input(candidate.records[i], map, rules[i])}].candidate.push_back(i);
  std::erase_if(rest, [](const auto& each) { return each.second.reference.empty() || each.second.candidate.empty(); });
  Pairing out;
  std::vector<NamedCalls> calls;
  for (const auto& [name, sides] : rest) calls.push_back(sides);
  const auto aligned = align_calls(reference, candidate, calls);
  size_t at = 0;
  for (const auto& [name, sides] : rest) {
    auto found = aligned[at++];
    if (found.empty())
      for (const size_t i : sides.reference) {
        const TensorKey& key = reference.records[i].key;
        const auto same = exact.find({name.first, name.second, key.step, key.hit, key.tags});
        if (same != exact.end() && !used[same->second]) found.emplace_back(i, same->second);
      }
    if (found.size() < sides.reference.size() || found.size() < sides.candidate.size())
      out.other_counts.push_back(
          fmt::format("{}: {} of the reference ({}) against {} of yours ({}): {}, for steps, hits or passes differ",
                      name.first, sides.reference.size(), calls_of(reference, sides.reference), sides.candidate.size(),
                      calls_of(candidate, sides.candidate),
                      found.empty() ? "not paired" : fmt::format("{} paired by their values", found.size())));
    for (const auto& [i, j] : found) {
      partner[i] = j, used[j] = true;
      how[i] = "by order: step, hit or tags differ";
    }
  }
  if (!map.empty()) pair_stages_by_their_use(reference, rules, partner, how);
  pair_checkpoints_by_content(reference, candidate, partner, how, used);
  pair_last_pictures(reference, candidate, partner, how, used);
  for (size_t i = 0; i < reference.records.size(); ++i) {
    if (!wanted(reference.records[i].key.name)) continue;
    if (partner[i] == SIZE_MAX)
      out.only_reference.push_back(i);
    else
      out.pairs.push_back({i, partner[i], rules[partner[i]], how[i]});
  }
  for (size_t i = 0; i < candidate.records.size(); ++i)
    if (!used[i] && wanted(names[i])) out.only_candidate.push_back(i);
  return out;
}

}  // namespace lockstep
