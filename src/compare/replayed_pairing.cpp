#include "compare/replayed_pairing.h"

#include <algorithm>
#include <map>
#include <set>

#include "diagnose/replay/replay_search.h"

namespace lockstep {
namespace {

constexpr size_t kMostTargets = 16;
constexpr int64_t kMostReplayedElements = int64_t{1} << 20;

bool is_of_floats(const RecordedTensor& record) {
  return record.load && is_floating(record.dtype) && !record.shape.empty();
}

// What the tensor may be: as many elements, made after the last tensor that is known, each content once.
std::vector<size_t> possible_partners(const RunView& reference, size_t after, int64_t elements) {
  std::vector<size_t> out;
  std::set<std::string> seen;
  for (size_t i = after; i < reference.records.size() && out.size() < kMostTargets; ++i) {
    const RecordedTensor& record = reference.records[i];
    if (!is_of_floats(record) || checked_numel(record.shape) != elements) continue;
    if (record.checksum.empty() || seen.insert(record.checksum).second) out.push_back(i);
  }
  return out;
}

}  // namespace

std::optional<FoundMap> map_by_replay(const RunView& reference, const RunView& candidate, const Structure& structure,
                                      const CompareOptions& options, const std::function<bool(size_t)>& is_good,
                                      const Comparison& compared) {
  if (!options.diagnose || !has_no_inputs(candidate)) return std::nullopt;
  std::map<size_t, const PairResult*> of_candidate;
  for (const PairResult& result : compared.results) of_candidate[result.pair.candidate] = &result;
  std::map<size_t, size_t> known;  // reference → candidate
  size_t unknown = SIZE_MAX, after = 0, partner = SIZE_MAX;
  for (size_t i = 0; i < candidate.records.size() && unknown == SIZE_MAX; ++i) {
    const auto found = of_candidate.find(i);
    const bool good = found != of_candidate.end() && is_good(found->second->pair.reference);
    if (good) known[found->second->pair.reference] = i, after = std::max(after, found->second->pair.reference + 1);
    // Only what the program names itself: the recorder's own names are paired by much more than content.
    if (good || !is_of_floats(candidate.records[i]) || candidate.records[i].role != Role::kCheckpoint) continue;
    if (found != of_candidate.end() && found->second->state == PairState::kUnread) continue;
    unknown = i;
    if (found != of_candidate.end()) partner = found->second->pair.reference;
  }
  if (unknown == SIZE_MAX) return std::nullopt;
  const RecordedTensor& tensor = candidate.records[unknown];
  if (checked_numel(tensor.shape) > kMostReplayedElements) return std::nullopt;
  const std::vector<size_t> targets = possible_partners(reference, after, checked_numel(tensor.shape));
  if (targets.empty()) return std::nullopt;
  Case asked(reference, candidate, structure, targets[0], unknown);
  asked.partner = [&](size_t i) {
    const auto found = known.find(i);
    return found == known.end() ? SIZE_MAX : found->second;
  };
  asked.weights_r = options.weights_reference, asked.weights_c = options.weights_candidate;
  const Replayed replayed = search_partner(asked, targets);
  if (!replayed.finding) return std::nullopt;
  const RecordedTensor& answer = reference.records[replayed.target];
  if (partner != SIZE_MAX && reference.records[partner].key.name == answer.key.name) return std::nullopt;
  FoundMap out = compared.found;
  const std::string& name = tensor.key.name;
  const auto is_free = [&](const ProposedRule& rule) {
    return rule.rule.candidate != name && rule.rule.reference != answer.key.name;
  };
  std::erase_if(out.rules, [&](const ProposedRule& rule) { return !is_free(rule); });
  std::erase_if(out.unsure, [&](const std::string& words) { return words.starts_with(name + " may be "); });
  ProposedRule rule;
  rule.rule.candidate = name, rule.rule.reference = answer.key.name;
  rule.rule.input = answer.role == Role::kInput;
  rule.why = "one stage done otherwise makes it", rule.tensors = 1;
  out.rules.push_back(std::move(rule));
  return out;
}

}  // namespace lockstep
