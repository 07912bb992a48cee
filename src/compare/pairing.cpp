#include "compare/pairing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/names.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

// "why" and "names" are what a proposal says of itself.
constexpr std::array<std::string_view, 8> kRuleFields{"candidate", "reference", "permute", "slice",
                                                      "reshape",   "dtype",     "why",     "names"};

// An input never answers an output; a checkpoint, a variable and an output may.
bool is_input(const RecordedTensor& record) {
  return record.role == Role::kInput;
}

std::string normal_name(const RecordedTensor& record, const std::vector<MapRule>& map, int& rule) {
  for (size_t i = 0; i < map.size(); ++i)
    if (auto name = mapped_name(map[i], record.key.name)) {
      rule = static_cast<int>(i);
      return *name;
    }
  return record.key.name;
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
  if (!document.is_object() || !document.contains("rules") || !document["rules"].is_array())
    fail(Code::kBadInput, "map", "no rules in " + file.string(), {.expected = R"({"rules": [...]})"});
  for (const Json& rule : document["rules"]) {
    if (!rule.is_object() || !rule.contains("candidate") || !rule.contains("reference") ||
        !rule["candidate"].is_string() || !rule["reference"].is_string())
      fail(Code::kBadInput, "map", "a rule without names",
           {.expected = R"("candidate" and "reference")", .got = rule.dump()});
    MapRule next{rule["candidate"].get<std::string>(), rule["reference"].get<std::string>(), {}, {}, {}, {}};
    for (const auto& [key, value] : rule.items())
      if (std::find(kRuleFields.begin(), kRuleFields.end(), key) == kRuleFields.end())
        fail(Code::kBadInput, "map", fmt::format("a rule has the unknown field \"{}\"", key),
             {.expected = "candidate, reference, permute, slice, reshape or dtype", .got = rule.dump()});
    if (std::count(next.reference.begin(), next.reference.end(), '*') >
        std::count(next.candidate.begin(), next.candidate.end(), '*'))
      fail(Code::kBadInput, "map", fmt::format("{} has more stars than {}", next.reference, next.candidate),
           {.expected = "a star of the candidate for each of the reference"});
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
  // Backtracking over the stars, shortest match first; names are short.
  std::vector<std::string> captured;
  const std::string& pattern = rule.candidate;
  const auto match = [&](auto&& self, size_t p, size_t n) -> bool {
    if (p == pattern.size()) return n == name.size();
    if (pattern[p] != '*') return n < name.size() && pattern[p] == name[n] && self(self, p + 1, n + 1);
    for (size_t length = 0; n + length <= name.size(); ++length) {
      captured.push_back(name.substr(n, length));
      if (self(self, p + 1, n + length)) return true;
      captured.pop_back();
    }
    return false;
  };
  if (!match(match, 0, 0)) return std::nullopt;
  std::string out;
  size_t star = 0;
  for (const char c : rule.reference) {
    if (c != '*')
      out += c;
    else if (star < captured.size())
      out += captured[star++];
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
    exact.try_emplace({names[i], is_input(record), record.key.step, record.key.hit, record.key.tags}, i);
  }
  std::vector<size_t> partner(reference.records.size(), SIZE_MAX);
  std::vector<std::string> how(reference.records.size());
  std::vector<bool> used(candidate.records.size());
  for (size_t i = 0; i < reference.records.size(); ++i) {
    const TensorKey& key = reference.records[i].key;
    const auto found = exact.find({key.name, is_input(reference.records[i]), key.step, key.hit, key.tags});
    if (found == exact.end() || used[found->second] || !wanted(key.name)) continue;
    partner[i] = found->second, used[found->second] = true;
    if (rules[found->second] >= 0) how[i] = "by the map";
  }
  // What is left: the same name, in order, provided both sides have equally many of them.
  std::map<std::pair<std::string, bool>, std::pair<std::vector<size_t>, std::vector<size_t>>> rest;
  for (size_t i = 0; i < reference.records.size(); ++i)
    if (partner[i] == SIZE_MAX && wanted(reference.records[i].key.name))
      rest[{reference.records[i].key.name, is_input(reference.records[i])}].first.push_back(i);
  for (size_t i = 0; i < candidate.records.size(); ++i)
    if (!used[i] && wanted(names[i])) rest[{names[i], is_input(candidate.records[i])}].second.push_back(i);
  Pairing out;
  for (const auto& [name, sides] : rest) {
    if (sides.first.size() != sides.second.size()) {
      if (!sides.first.empty() && !sides.second.empty())
        out.other_counts.push_back(fmt::format(
            "{}: {} of the reference ({}) against {} of yours ({}): not paired, for steps, hits or passes differ",
            name.first, sides.first.size(), calls_of(reference, sides.first), sides.second.size(),
            calls_of(candidate, sides.second)));
      continue;
    }
    for (size_t k = 0; k < sides.first.size(); ++k) {
      partner[sides.first[k]] = sides.second[k], used[sides.second[k]] = true;
      how[sides.first[k]] = "by order: step, hit or tags differ";
    }
  }
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
