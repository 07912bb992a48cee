#include "compare/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compare/range_cards.h"

namespace lockstep {
namespace {

bool is_bad(const PairResult& result) {
  return result.state == PairState::kBad || result.state == PairState::kIncomparable;
}

// The same call has gone on with it: something bad follows before the call that holds it is over. Its result need not
// show that: beside a residual, behind a norm, or under the noise of a coarse precision, a small error is lost again.
// A call that hands the tensor on as its own result is not where it is used: then the next one above counts.
bool goes_on_inside(const RunView& reference, const Structure& structure, const Comparison& out, size_t index) {
  const size_t record = out.results[index].pair.reference;
  const RecordedTensor& bad = reference.records[record];
  std::string scope = parent_of(structure.site(record).module);
  for (size_t i = index + 1; i < out.results.size() && !scope.empty(); ++i) {
    const size_t other = out.results[i].pair.reference;
    const RecordedTensor& later = reference.records[other];
    if (later.key.step != bad.key.step || later.key.tags != bad.key.tags) break;
    const bool same = is_same_tensor(reference, other, record);
    if (same && later.role == Role::kOutput && structure.site(other).module == scope) scope = parent_of(scope);
    if (later.key.name != scope && !is_inside(later.key.name, scope)) break;
    if (later.key.name != bad.key.name && is_bad(out.results[i]) && !same) return true;
  }
  return false;
}

// Bad here, yet everything that was made from it is right: the enclosing calls' outputs, or all that follows.
bool nothing_follows(const RunView& reference, const Structure& structure,
                     const std::function<size_t(size_t)>& result_of, const Comparison& out, size_t index) {
  const size_t record = out.results[index].pair.reference;
  const std::string& module = structure.site(record).module;
  if (!module.empty()) {
    if (goes_on_inside(reference, structure, out, index)) return false;
    std::string up = reference.records[record].role == Role::kInput ? module : parent_of(module);
    for (; !up.empty(); up = parent_of(up)) {
      size_t seen = 0, bad = 0;
      bool handed_on = false, unseen = false;
      for (const size_t output : structure.records_of(up, Role::kOutput, record)) {
        const size_t result = result_of(output);
        if (output <= record) continue;
        if (result == SIZE_MAX || out.results[result].state == PairState::kUnread) {
          unseen = true;  // that one may show it
          continue;
        }
        handed_on = handed_on || is_same_tensor(reference, output, record);
        ++seen;
        bad += is_bad(out.results[result]);
      }
      if (bad > 0 && !handed_on) return false;
      if (seen && !handed_on && !unseen) return true;
    }
  }
  size_t later = 0;
  for (size_t i = index + 1; i < out.results.size(); ++i) {
    if (is_bad(out.results[i])) return false;
    ++later;
  }
  return later > 0;
}

// Two steps of one call may have changed places: then what yours was given first is where it went wrong, though the
// reference comes to it later. Steps of another stream (of text, with other tokens) and layers that are given one
// tensor come in any order.
size_t first_in_candidate(const RunView& reference, const Structure& structure, const Comparison& out, size_t chosen) {
  const auto record = [&](size_t i) { return out.results[i].pair.reference; };
  const auto is_given = [&](size_t i) { return reference.records[record(i)].role == Role::kInput; };
  const auto size = [&](size_t i) { return checked_numel(reference.records[record(i)].shape); };
  const std::string scope = parent_of(structure.site(record(chosen)).module);
  if (!is_given(chosen) || scope.empty()) return chosen;
  std::vector<size_t> steps;
  size_t earliest = out.results[chosen].pair.candidate;
  for (size_t i = chosen + 1; i < out.results.size(); ++i) {
    const std::string& module = structure.site(record(i)).module;
    if (!same_call(reference, record(i), record(chosen)) || (module != scope && !is_inside(module, scope))) break;
    if (is_same_tensor(reference, record(i), record(chosen)))
      earliest = std::min(earliest, out.results[i].pair.candidate);
    else if (is_given(i) && out.results[i].state == PairState::kBad && parent_of(module) == scope &&
             size(i) == size(chosen))
      steps.push_back(i);
  }
  size_t first = chosen;
  for (const size_t i : steps)
    if (out.results[i].pair.candidate < earliest) first = i, earliest = out.results[i].pair.candidate;
  return first;
}

}  // namespace

void forgive_the_harmless(const RunView& reference, const Structure& structure,
                          const std::function<size_t(size_t)>& result_of,
                          const std::function<bool(const PairResult&)>& is_a_mistake, Comparison& out) {
  constexpr double kHardlyBeyond = 5;  // times the limit
  constexpr size_t kMostSaid = 3;
  size_t said = 0;
  for (size_t i = 0; i < out.results.size(); ++i) {
    PairResult& result = out.results[i];
    if (result.state != PairState::kBad || result.tolerance || !std::isfinite(result.in_floors)) continue;
    if (result.in_floors > kHardlyBeyond * out.floor_factor) continue;
    if (!nothing_follows(reference, structure, result_of, out, i)) continue;
    if (result.made_here && is_a_mistake(result)) continue;
    result.state = PairState::kGood, result.harmless = true;
    const bool whole = result.in_floors > out.floor_factor;  // else a row or a channel of it alone
    const std::string words = fmt::format("{:.3g} floors, {} beyond its limit, and everything made from it agrees",
                                          result.in_floors, whole ? "a little" : "one part of it a little");
    result.note += (result.note.empty() ? "" : "; ") + words;
    if (++said <= kMostSaid)
      out.notes.push_back(
          fmt::format("{}: {}: harmless", to_string(reference.records[result.pair.reference].key), words));
  }
}

void locate_divergence(const RunView& reference, const Structure& structure,
                       const std::function<size_t(size_t)>& result_of, Comparison& out) {
  std::optional<size_t> first, first_isolated;
  for (size_t i = 0; i < out.results.size(); ++i) {
    if (!is_bad(out.results[i])) continue;
    // Once an error goes on, what comes after is its consequence and needs no further look.
    if (!first) out.results[i].isolated = nothing_follows(reference, structure, result_of, out, i);
    if (out.results[i].isolated) {
      if (!first_isolated) first_isolated = i;
    } else if (!first) {
      first = i;
    }
  }
  if (first) first = first_in_candidate(reference, structure, out, *first);
  const size_t chosen = first ? *first : *first_isolated;
  if (first && first_isolated && *first_isolated < *first)
    out.notes.push_back(fmt::format("{} differs too, but nothing after it is affected: compare what was captured there",
                                    to_string(reference.records[out.results[*first_isolated].pair.reference].key)));
  const PairResult& result = out.results[chosen];
  const size_t record = result.pair.reference;
  const Site& site = structure.site(record);
  const RecordedTensor& tensor = reference.records[record];
  Divergence found;
  found.result = chosen;
  found.stage = site.module.empty() ? tensor.key.name : site.module;
  if (result.state == PairState::kIncomparable) {
    found.kind = "capture";
  } else if (site.module.empty()) {
    found.kind = "glue";
    found.parent = "pipeline";
  } else if (tensor.role == Role::kInput) {
    found.kind = "glue";
    found.parent = structure.caller_of(site.module);
  } else if (structure.is_container(site.module)) {
    found.kind = "glue";
    found.parent = site.module;
  } else {
    found.kind = "module";
    found.parent = parent_of(site.module);
    if (has_no_inputs(reference)) found.hint = kRecordInputs;
  }
  out.first = std::move(found);
}

void fill_curve(const RunView& reference, Comparison& out) {
  // Blocks and stages: names that end in a number below a list, and the pipeline's own.
  std::vector<const PairResult*> chosen;
  const auto is_block = [](const std::string& name) {
    const std::string leaf = leaf_of(name);
    return std::count(name.begin(), name.end(), '.') <= 4 && leaf.find_first_not_of("0123456789") == std::string::npos;
  };
  for (const PairResult& result : out.results) {
    const RecordedTensor& record = reference.records[result.pair.reference];
    if (result.state == PairState::kUnread || record.role == Role::kInput) continue;
    if (record.role == Role::kCheckpoint || is_block(record.key.name)) chosen.push_back(&result);
  }
  if (chosen.size() < 3) {
    chosen.clear();
    for (const PairResult& result : out.results)
      if (result.state != PairState::kUnread) chosen.push_back(&result);
  }
  std::vector<double> errors;
  std::vector<std::string> names;
  std::vector<size_t> results;
  for (const PairResult* result : chosen) {
    const TensorKey& key = reference.records[result->pair.reference].key;
    out.curve.push_back({key.name, key.step, result->error.relative, result->noise_floor,
                         static_cast<size_t>(result - out.results.data())});
    if (result->state == PairState::kIncomparable) continue;  // another shape is no size of an error
    errors.push_back(result->error.relative);
    names.push_back(to_string(key));
    results.push_back(out.curve.back().result);
  }
  out.growth = fit_growth(errors, names);
  if (out.growth.kind == "step")
    out.growth.at = names[out.growth.jump_at], out.growth.jump_result = results[out.growth.jump_at];
}

void settle_growth(Comparison& out) {
  Growth& growth = out.growth;
  if (!out.first) {
    // Nothing is beyond the noise: a step is told as what it is, and accuses nobody.
    if (growth.kind == "step" && !growth.words.empty())
      growth.words = fmt::format("the largest step is {:.3g} times at {}, within rounding", growth.jump, growth.at);
    return;
  }
  // An error that starts at its full height also grows without a jump; it is no rounding when a tensor is beyond the
  // noise. And a jump elsewhere than at the first divergence is no second verdict.
  const auto after = std::find_if(out.curve.begin(), out.curve.end(),
                                  [&](const StagePoint& point) { return point.result >= out.first->result; });
  const bool is_there = growth.kind == "step" && after != out.curve.end() && growth.jump_result == after->result;
  if (!is_there) growth.words.clear();
}

void fill_notes(const RunView& reference, const RunView& candidate, Comparison& out) {
  size_t layouts = 0;
  for (const PairResult& result : out.results) {
    const RecordedTensor& record = reference.records[result.pair.reference];
    if (result.state == PairState::kLayout && ++layouts <= 3)
      out.notes.push_back(fmt::format("{}: {}", to_string(record.key), result.note));
  }
  if (layouts > 3) out.notes.push_back(fmt::format("{} tensors in all have another layout", layouts));
  size_t alarms = 0;
  for (const PairResult& result : out.results) {
    const std::string& name = reference.records[result.pair.reference].key.name;
    if (result.state == PairState::kUnread || result.error.identical) continue;
    const std::string alarm = range_alarm(name, result.error.rms_candidate);
    if (alarm.empty() || ++alarms > 3) continue;
    const bool shared = result.error.rms_candidate < 4 * result.error.rms_reference;
    out.notes.push_back(fmt::format("{}: {}{}", name, alarm, shared ? "; so do the reference's" : ""));
  }
  const auto left_over = [&](const RunView& run, const std::vector<size_t>& records, const char* whose) {
    if (records.empty()) return;
    std::set<std::string> names;
    for (const size_t i : records) names.insert(run.records[i].key.name);
    const bool one = records.size() == 1;
    out.notes.push_back(fmt::format("{} tensor{} of {} {} no partner, {} name{}; the first is {}", records.size(),
                                    one ? "" : "s", whose, one ? "has" : "have", names.size(),
                                    names.size() == 1 ? "" : "s", to_string(run.records[records[0]].key)));
  };
  left_over(reference, out.only_reference, "the reference");
  left_over(candidate, out.only_candidate, "yours");
}

}  // namespace lockstep
