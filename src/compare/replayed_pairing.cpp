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

// What the tensor may be: as many elements, made after the last tensor that is known, each content once. What the model
// makes in its next call comes after it where there is one in this: replayed together, the later would take all there
// is.
std::vector<size_t> possible_partners(const RunView& reference, const Structure& structure, size_t after,
                                      int64_t elements) {
  std::vector<size_t> out;
  std::set<std::string> seen;
  for (size_t i = after; i < reference.records.size() && out.size() < kMostTargets; ++i) {
    const RecordedTensor& record = reference.records[i];
    if (!out.empty() && !structure.site(i).module.empty() && !same_call(reference, i, out[0])) break;
    if (!is_of_floats(record) || checked_numel(record.shape) != elements) continue;
    if (record.checksum.empty() || seen.insert(record.checksum).second) out.push_back(i);
  }
  return out;
}

bool is_first_after(const RunView& run, const std::string& name, size_t record) {
  const auto first = std::find_if(run.records.begin(), run.records.end(),
                                  [&](const RecordedTensor& tensor) { return tensor.key.name == name; });
  return first - run.records.begin() > static_cast<std::ptrdiff_t>(record);
}

}  // namespace

ReplayedPairing pair_by_replay(const RunView& reference, const RunView& candidate, const Structure& structure,
                               const CompareOptions& options, const std::function<bool(size_t)>& is_good,
                               const Comparison& compared) {
  ReplayedPairing out;
  if (!options.diagnose || !has_no_inputs(candidate)) return out;
  std::map<size_t, const PairResult*> of_candidate;
  for (const PairResult& result : compared.results) of_candidate[result.pair.candidate] = &result;
  std::map<size_t, size_t> known;  // reference → candidate
  size_t unknown = SIZE_MAX, after = 0, partner = SIZE_MAX;
  double error = INFINITY;
  for (size_t i = 0; i < candidate.records.size() && unknown == SIZE_MAX; ++i) {
    const auto found = of_candidate.find(i);
    const bool good = found != of_candidate.end() && is_good(found->second->pair.reference);
    if (good) known[found->second->pair.reference] = i, after = std::max(after, found->second->pair.reference + 1);
    // Only what the program names itself: the recorder's own names are paired by much more than content.
    if (good || !is_of_floats(candidate.records[i]) || candidate.records[i].role != Role::kCheckpoint) continue;
    if (found != of_candidate.end() && found->second->state == PairState::kUnread) continue;
    unknown = i;
    if (found != of_candidate.end() && found->second->state == PairState::kBad)
      partner = found->second->pair.reference, error = found->second->error.relative;
  }
  if (unknown == SIZE_MAX) return out;
  const RecordedTensor& tensor = candidate.records[unknown];
  const int64_t elements = checked_numel(tensor.shape);
  if (elements > kMostReplayedElements) return out;
  if (partner != SIZE_MAX && checked_numel(reference.records[partner].shape) != elements) partner = SIZE_MAX;
  const std::vector<size_t> targets = possible_partners(reference, structure, after, elements);
  if (targets.empty()) return out;
  Case asked(reference, candidate, structure, partner == SIZE_MAX ? targets[0] : partner, unknown);
  asked.partner = [&](size_t i) {
    const auto found = known.find(i);
    return found == known.end() ? SIZE_MAX : found->second;
  };
  asked.weights_r = options.weights_reference, asked.weights_c = options.weights_candidate;
  asked.error = error;
  out.tensor = {unknown, search_partner(asked, targets, partner)};
  const Replayed& replayed = out.tensor.search;
  if (!replayed.finding) return out;
  if (partner != SIZE_MAX && is_same_tensor(reference, partner, replayed.target)) return out;
  const RecordedTensor& answer = reference.records[replayed.target];
  out.map = compared.found;
  const std::string& name = tensor.key.name;
  // What the program names later is made later.
  std::erase_if(out.map->rules, [&](const ProposedRule& rule) {
    return rule.rule.candidate == name || rule.rule.reference == answer.key.name ||
           (is_first_after(candidate, rule.rule.candidate, unknown) &&
            !is_first_after(reference, rule.rule.reference, replayed.target));
  });
  std::erase_if(out.map->unsure, [&](const std::string& words) { return words.starts_with(name + " may be "); });
  ProposedRule rule;
  rule.rule.candidate = name, rule.rule.reference = answer.key.name;
  rule.rule.input = answer.role == Role::kInput;
  rule.why = "one stage done otherwise makes it", rule.tensors = 1;
  out.map->rules.push_back(std::move(rule));
  return out;
}

}  // namespace lockstep
