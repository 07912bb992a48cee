#include "compare/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/interrupt.h"
#include "base/names.h"
#include "compare/coverage.h"
#include "compare/divergence.h"
#include "compare/first_cause.h"
#include "compare/other_calls.h"
#include "compare/pair_walk.h"
#include "compare/pictures.h"
#include "compare/record_plan.h"
#include "compare/replayed_pairing.h"
#include "compare/run_model.h"
#include "diagnose/case/weight_names.h"

namespace lockstep {
namespace {

// Pairs of which values are missing and statistics show no difference: what to keep to compare them.
std::string unread_note(const RunView& reference, const RunView& candidate, const Structure& structure,
                        const std::function<size_t(size_t)>& partner, const std::vector<PairResult>& results) {
  const auto unread = [](const PairResult& result) { return result.state == PairState::kUnread; };
  const auto first = std::find_if(results.begin(), results.end(), unread);
  if (first == results.end()) return "";
  const auto count = std::count_if(first, results.end(), unread);
  return fmt::format(
      "{} pair{} not compared: values were not kept on both sides; statistics show no difference; to "
      "compare from the first: {}",
      count, count == 1 ? " was" : "s were",
      record_command(names_to_record(reference, candidate, structure, partner, first->pair.reference)));
}

// What the map does, and what of the user's files nothing took: a misspelt name must not look like a pass.
void note_the_map(const RunView& reference, const RunView& candidate, const CompareOptions& options, Comparison& out) {
  for (const MapRule& rule : options.map) {
    const auto applies = [&](const RecordedTensor& record) { return mapped_name(rule, record.key.name).has_value(); };
    if (std::none_of(candidate.records.begin(), candidate.records.end(), applies))
      out.notes.push_back(fmt::format("the map's {} is no tensor of yours", rule.candidate));
    else if (!rule.permute.empty())  // a proposal may have put it there: never silently forgiven
      out.notes.push_back(
          fmt::format("{}: the map takes its axes in the order {}", rule.candidate, fmt::join(rule.permute, ", ")));
  }
  for (const auto& [glob, limit] : options.tolerances)
    if (std::none_of(reference.records.begin(), reference.records.end(),
                     [&, &pattern = glob](const RecordedTensor& r) { return glob_match(pattern, r.key.name); }))
      out.notes.push_back(fmt::format("the tolerance for {} fits no tensor of the reference", glob));
}

bool fits_run(const RunView& run, const std::shared_ptr<const WeightSource>& weights) {
  return weights && modules_with_weights(run, *weights) > 0;
}

// Names differ: how they were paired, and what could not be.
void note_what_was_found(Comparison& out) {
  constexpr size_t kMostSaid = 3;
  size_t names = 0, moved = 0;
  for (const ProposedRule& rule : out.found.rules) names += rule.tensors, moved += !rule.rule.permute.empty();
  if (names == 0) return;
  out.notes.push_back(
      fmt::format("the names differ: {} of them were paired by content, place and name ({} rules{}); "
                  "--propose-map FILE writes the map, --map FILE takes one that was mended",
                  names, out.found.rules.size(), moved ? fmt::format(", {} with axes in another order", moved) : ""));
  for (size_t i = 0; i < std::min(kMostSaid, out.found.unsure.size()); ++i)
    out.notes.push_back(out.found.unsure[i] + ": not sure, so left out");
  if (out.found.unsure.size() > kMostSaid)
    out.notes.push_back(fmt::format("{} names in all were left out as unsure", out.found.unsure.size()));
}

bool counts_as_bad(const PairResult& result) {
  return result.state == PairState::kBad || result.state == PairState::kIncomparable;
}

}  // namespace

std::string_view state_name(PairState state) {
  switch (state) {
    case PairState::kGood:
      return "match";
    case PairState::kBad:
      return "mismatch";
    case PairState::kLayout:
      return "layout";
    case PairState::kIncomparable:
      return "incomparable";
    case PairState::kUnread:
      break;
  }
  return "unread";
}

int64_t dropped_records(const RunView& run) {
  const auto found = run.header.find("dropped_records");
  return found != run.header.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

Comparison compare_runs(const RunView& reference, const RunView& candidate, const CompareOptions& given) {
  Comparison out;
  CompareOptions options = given;
  out.map = given.map;
  out.notes = given.notes;
  // A run says which model it had; what is given counts more.
  const bool weights_given = given.weights_reference != nullptr;
  options.weights_reference =
      named_as_in(reference, weights_given ? given.weights_reference : weights_of_run(reference));
  if (!weights_given && !fits_run(reference, options.weights_reference))
    options.weights_reference = named_as_in(reference, weights_of_run(candidate));
  if (!weights_given && !fits_run(reference, options.weights_reference)) options.weights_reference = nullptr;
  options.weights_candidate = named_as_in(reference, given.weights_candidate);  // cases speak in the reference's names
  if (weights_given && modules_with_weights(reference, *options.weights_reference) == 0)
    out.notes.push_back("none of the weights given has a name of this run: they are of no use here");
  const bool finds_map = options.map.empty() && options.find_map && !names_agree(reference, candidate);
  if (finds_map) {
    out.found = given.found ? *given.found
                            : find_map(reference, candidate, {}, options.only, options.weights_reference.get(),
                                       given.weights_candidate.get());
    for (const ProposedRule& rule : out.found.rules) options.map.push_back(rule.rule);
    out.map = options.map;
    note_what_was_found(out);
  } else {
    note_the_map(reference, candidate, options, out);
  }
  const Structure structure(reference);
  Pairing pairing = pair_runs(reference, candidate, options.map, options.only);
  PairWalk walk(reference, candidate, structure, options, out);
  for (const Pair& pair : pairing.pairs) {
    check_interrupt("compare");
    walk.visit(pair);
  }
  out.notes.insert(out.notes.end(), pairing.other_counts.begin(), pairing.other_counts.end());
  out.only_reference = std::move(pairing.only_reference);
  out.only_candidate = std::move(pairing.only_candidate);
  out.floor_source =
      options.noise ? "a second reference run" : "dtype, length of sums, and the error of the stages before";
  forgive_the_harmless(
      reference, structure, [&](size_t i) { return walk.result_of(i); },
      [&](const PairResult& result) { return walk.is_a_mistake(result); }, out);
  if (finds_map && !given.found) {
    ReplayedPairing found = pair_by_replay(
        reference, candidate, structure, options, [&](size_t i) { return walk.is_good(i); }, out);
    options.replayed = std::move(found.tensor);
    if (found.map) {
      CompareOptions again = given;
      again.found = std::move(found.map), again.replayed = std::move(options.replayed);
      return compare_runs(reference, candidate, again);
    }
  }
  const bool any_bad = std::any_of(out.results.begin(), out.results.end(), counts_as_bad);
  const int64_t dropped_reference = dropped_records(reference), dropped_candidate = dropped_records(candidate);
  const int64_t dropped = dropped_reference + dropped_candidate;
  out.coverage = coverage_of(reference, candidate, out);
  out.verdict = any_bad                                       ? "mismatch"
                : !out.compared                               ? "nothing_compared"
                : dropped > 0 || out.damaged > 0              ? "partial"
                : out.coverage.is_partial && !options.partial ? "partial"
                                                              : "match";
  if (dropped > 0)
    out.notes.push_back(fmt::format(
        "{} record{} could not be read and {} left out ({} of the reference, {} of yours): torn, malformed, or "
        "pointing out of the run",
        dropped, dropped == 1 ? "" : "s", dropped == 1 ? "is" : "are", dropped_reference, dropped_candidate));
  if (out.damaged > 0)
    out.notes.push_back(fmt::format("{} file{} not what was captured: 'lockstep runs show RUN --verify' lists them",
                                    out.damaged, out.damaged == 1 ? " is" : "s are"));
  out.images = compare_pictures(reference, candidate, out.results);
  fill_curve(reference, out);
  const auto partner = [&](size_t i) {
    return walk.result_of(i) == SIZE_MAX ? SIZE_MAX : out.results[walk.result_of(i)].pair.candidate;
  };
  if (std::string note = unread_note(reference, candidate, structure, partner, out.results); !note.empty())
    out.notes.push_back(std::move(note));
  fill_notes(reference, candidate, out);
  if (any_bad)
    locate_divergence(
        reference, structure, [&](size_t i) { return walk.result_of(i); }, out);
  settle_growth(out);
  if (!any_bad) return out;
  if (options.diagnose) {
    const Pair& first = out.results[out.first->result].pair;
    const double unit = walk.unit_of(reference.records[first.reference], candidate.records[first.candidate]);
    explain_first(
        reference, candidate, structure, options, [&](size_t i) { return walk.is_good(i); }, unit, out);
  }
  const Pair& bad = out.results[out.first->result].pair;
  if (auto other =
          find_other_call(reference, candidate, bad, out.floor_factor * out.results[out.first->result].noise_floor)) {
    out.causes.insert(out.causes.begin(), std::move(*other));
    if (out.causes.size() > kMostCauses) out.causes.pop_back();
    out.first->kind = "capture";
  }
  const auto add_hint = [&](const std::string& words) {
    if (!words.empty()) out.first->hint += (out.first->hint.empty() ? "" : "; ") + words;
  };
  const bool by_hand = has_no_inputs(candidate) && candidate.records[bad.candidate].load;
  if (by_hand) {
    out.first->hint.clear();
    if (out.causes.empty())
      add_hint(candidate.records[bad.candidate].role == Role::kCheckpoint
                   ? name_in_between(reference, partner, bad.reference)
                   : kRecordInputs);
  }
  if (out.causes.empty() && !options.weights_reference)
    add_hint("neither run says which checkpoint it loaded: --weights DIR lets weights be part of the search");
  // A command comes last, so that it can be copied to the end of the line.
  if (const auto names = names_to_record(reference, candidate, structure, partner, bad.reference);
      !by_hand && !names.empty()) {
    add_hint(fmt::format("values were not kept of {} tensor{} that the cause needs: {}", names.size(),
                         names.size() == 1 ? "" : "s", record_command(names)));
  }
  return out;
}

}  // namespace lockstep
