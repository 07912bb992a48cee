#include "compare/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/names.h"
#include "capture/checksum.h"
#include "compare/alignment.h"
#include "compare/coverage.h"
#include "compare/divergence.h"
#include "compare/first_cause.h"
#include "compare/other_calls.h"
#include "compare/pictures.h"
#include "compare/record_plan.h"
#include "compare/replayed_pairing.h"
#include "compare/run_model.h"
#include "diagnose/case/neighbours.h"
#include "diagnose/case/weight_names.h"
#include "diagnose/diagnose.h"
#include "diagnose/search/budget.h"
#include "measure/region.h"
#include "measure/statistics_error.h"

namespace lockstep {
namespace {

constexpr size_t kMostInside = 80;  // records of a call whose error may have gone into its result
constexpr size_t kMostCauses = 3;
constexpr int kMostConfirmations = 64;  // stages looked at closely before an error is believed
constexpr double kLoud = 1e-3;          // errors below are told from rounding by their size alone
constexpr double kLocalUnits = 4;       // unit roundoffs a stage may add, its formula recomputed from its own inputs
constexpr int64_t kMostLocalElements = 1 << 22, kMostLocalInAll = int64_t{1} << 27;
constexpr double kNoiseRunFactor = 3;  // a third run may be this much further off than the second

bool is_picture_dtype(const RecordedTensor& record) {
  return record.dtype == DType::kU8 && record.shape.size() >= 3;
}

int64_t longest_axis(const Shape& shape) {
  return shape.empty() ? 1 : *std::max_element(shape.begin(), shape.end());
}

// One walk over the pairs in execution order.
class Walk {
 public:
  Walk(const RunView& reference, const RunView& candidate, const Structure& structure, const CompareOptions& options,
       Comparison& out)
      : reference_(reference),
        candidate_(candidate),
        structure_(structure),
        options_(options),
        out_(out),
        reference_precision_(reference),
        candidate_precision_(candidate),
        result_of_(reference.records.size(), SIZE_MAX) {
    if (!options.noise) return;
    out.floor_factor = kNoiseRunFactor;
    const Pairing noise = pair_runs(reference, *options.noise, {}, options.only);
    for (const Pair& pair : noise.pairs) noise_of_[pair.reference] = pair.candidate;
  }

  void visit(const Pair& pair) {
    PairResult result;
    result.pair = pair;
    result.note = pair.how;
    const RecordedTensor& r = reference_.records[pair.reference];
    const RecordedTensor& c = candidate_.records[pair.candidate];
    const double unit = unit_of(r, c);
    if (!measure(r, c, unit, result)) {
      if (result.state == PairState::kIncomparable || result.state == PairState::kBad)
        remember(pair.reference, result);
      else
        out_.results.push_back(std::move(result));
      return;
    }
    ++out_.compared;
    const FloorWalk::Limits limits = limits_for(pair.reference, r, c, unit, result);
    set_floor(limits.floor, result);
    const bool bad = is_bad(r, result, limits, unit, pair.reference);
    if (bad ? !only_amplifies(pair, unit, result) : adds_to_the_noise(pair, unit, result))
      result.state = PairState::kBad;
    else
      walk_.pass(result.error);
    remember(pair.reference, result);
  }

  size_t result_of(size_t record) const { return result_of_[record]; }
  bool is_good(size_t record) const {
    const size_t i = result_of_[record];
    return i != SIZE_MAX && (out_.results[i].state == PairState::kGood || out_.results[i].state == PairState::kLayout);
  }
  double unit_of(const RecordedTensor& r, const RecordedTensor& c) const {
    const double run = std::max(reference_precision_.unit(r.key.name), candidate_precision_.unit(c.key.name));
    const bool both_float = is_floating(r.dtype) && is_floating(c.dtype);
    return both_float ? std::max(run, std::min(unit_roundoff(r.dtype), unit_roundoff(c.dtype))) : run;
  }

 private:
  void remember(size_t record, PairResult& result) {
    result_of_[record] = out_.results.size();
    out_.results.push_back(std::move(result));
  }

  // False: said in the pair's note, and counted. A file that cannot be read at all leaves the pair unread.
  bool is_intact(const RecordedTensor& tensor, const char* side, PairResult& result) {
    std::string why = "does not hold the values of its capture";
    try {
      if (!tensor.load || tensor.checksum.empty() ||
          checksum_text(tensor.load().contiguous().contiguous_bytes()) == tensor.checksum)
        return true;
    } catch (const Error& error) {
      if (error.code() == Code::kCancelled || error.code() == Code::kMemory) throw;
      why = std::string("cannot be read: ") + error.what();
      result.state = PairState::kUnread;
    }
    ++out_.damaged;
    result.note += fmt::format("{}the file of the {} {}", result.note.empty() ? "" : "; ", side, why);
    return false;
  }

  // False when there is nothing to measure.
  bool measure(const RecordedTensor& r, const RecordedTensor& c, double unit, PairResult& result) {
    const int rule = result.pair.rule;
    // The checksums are of the capture: the bytes are looked at, because a file may have changed since.
    const bool intact = is_intact(r, "reference", result) && is_intact(c, "candidate", result);
    if (intact && rule < 0 && !r.checksum.empty() && r.checksum == c.checksum && r.dtype == c.dtype &&
        r.shape == c.shape) {
      result.error.identical = true;
      return true;
    }
    if (result.state == PairState::kUnread) return false;
    if (!r.load || !c.load) {
      result.state = PairState::kUnread;
      result.note += result.note.empty() ? "values were not kept" : "; values were not kept";
      if (r.stats && c.stats && r.shape == c.shape && is_floating(r.dtype) && is_floating(c.dtype))
        judge_by_statistics(least_error(*c.stats, *r.stats), unit, result);
      return false;
    }
    const Tensor expected = r.load();
    Tensor actual = c.load();
    if (rule >= 0) actual = apply_rule(options_.map[static_cast<size_t>(rule)], actual);
    // As in a tensor of the same layout, the error of the stages before is no surprise.
    result.layout_tolerance = kFloorFactor * walk_.limits(rounding_floor(unit, longest_axis(r.shape)), 0, 0).floor;
    const Alignment alignment = align(r.key.name, actual, expected, result.layout_tolerance);
    if (!alignment.comparable) {
      result.state = PairState::kIncomparable;
      result.note = alignment.words;
      result.error.relative = INFINITY;
      return false;
    }
    if (!alignment.words.empty()) {
      result.note = alignment.words;
      result.state = PairState::kLayout;
    }
    result.error = pair_error(alignment.candidate, expected);
    return true;
  }

  // Statistics cannot show that two tensors agree, but they can show that they do not.
  void judge_by_statistics(double least, double unit, PairResult& result) {
    const double inherited = walk_.limits(0, 0, 0).floor;
    result.noise_floor = std::max({kLoud, 64 * unit, inherited}) / kFloorFactor;
    if (!(least > kFloorFactor * std::max(result.noise_floor, inherited))) return;
    result.state = PairState::kBad;
    result.error.relative = least;
    result.in_floors = least / result.noise_floor;
    result.note += fmt::format(", but the statistics differ by at least {:.2g}", least);
    ++out_.compared;
  }

  FloorWalk::Limits limits_for(size_t record, const RecordedTensor& r, const RecordedTensor& c, double unit,
                               PairResult& result) {
    double input_error = 0, input_slice = 0;
    int64_t length = longest_axis(r.shape);
    const auto may_inherit = [&](size_t from) {
      if (!is_good(from)) return;
      const PairResult& before = out_.results[result_of_[from]];
      input_error = std::max(input_error, before.error.relative);
      input_slice = std::max(input_slice, before.error.worst_slice);
    };
    // An output is made of its call's inputs and of what ran inside; an input of what its parent was given and has
    // made. One and the same tensor may show up again much later: then the checksum says so.
    const std::string& module = structure_.site(record).module;
    const std::string scope = r.role == Role::kOutput ? module : parent_of(module);
    if (!scope.empty()) {
      for (const size_t input : structure_.records_of(scope, Role::kInput, record)) {
        may_inherit(input);
        length = std::max(length, longest_axis(reference_.records[input].shape));
        if (r.role != Role::kOutput || result_of_[input] == SIZE_MAX) continue;
        const double error = out_.results[result_of_[input]].error.relative;
        result.fed = std::max(result.fed.value_or(0), error);
      }
      if (r.role == Role::kInput || structure_.is_container(module)) {
        size_t seen = 0;
        for (const size_t inside : structure_.records_inside(scope, record)) {
          if (++seen > kMostInside) break;
          may_inherit(inside);
        }
      }
    }
    if (!r.checksum.empty()) {
      const auto [latest, is_new] = latest_with_.try_emplace(r.checksum, record);
      if (!is_new) may_inherit(latest->second), latest->second = record;
    }
    double stage = rounding_floor(unit, 4 * length);
    // Pixels are whole numbers: one level either way is rounding, whatever the precision.
    if (is_picture_dtype(r) && is_picture_dtype(c) && result.error.rms_reference > 0)
      stage += 0.6 / result.error.rms_reference;
    return walk_.limits(stage, input_error, input_slice);
  }

  // Some stages are steep: a rounded timestep turns a sine by radians. Where the reference's own formula, applied to
  // the candidate's inputs, gives the candidate's output, the stage is right and the error inherited.
  bool only_amplifies(const Pair& pair, double unit, PairResult& result) {
    const RecordedTensor& r = reference_.records[pair.reference];
    if (r.role != Role::kOutput || ++confirmations_ > kMostConfirmations || !std::isfinite(result.error.relative))
      return false;
    double input_error = 0;
    for (const size_t input :
         structure_.records_of(structure_.site(pair.reference).module, Role::kInput, pair.reference)) {
      if (!is_good(input)) return false;
      input_error = std::max(input_error, out_.results[result_of_[input]].error.relative);
    }
    if (input_error == 0) return false;
    Case stage = case_of(pair, unit, result);
    if (!is_right_on_its_inputs(stage)) return false;
    result.note += fmt::format("{}amplifies the error of its input by {:.3g}; right on its own inputs",
                               result.note.empty() ? "" : "; ", result.error.relative / input_error);
    if (amplified_++ < 2) out_.notes.push_back(fmt::format("{} {}", to_string(r.key), result.note));
    return true;
  }

  // Far above what this stage rounds to, the error says little: a bug hides in what was inherited. And an error that is
  // small beside its neighbours' may still be far above that of the stage's own inputs. Then the stage is judged by
  // itself, once for each of its names: the reference's formula on the candidate's own inputs.
  bool adds_to_the_noise(const Pair& pair, double unit, PairResult& result) {
    const RecordedTensor& r = reference_.records[pair.reference];
    if (options_.noise || !options_.tolerances.empty() || result.error.identical || !is_floating(r.dtype)) return false;
    const double rounding = rounding_floor(unit, longest_axis(r.shape));
    const bool loud = result.error.relative >= std::max(kLoud, 4 * rounding),
               jumps = !loud && result.fed && result.error.relative > kFloorFactor * (rounding + *result.fed);
    if (!loud && !jumps) return false;
    const int64_t elements = checked_numel(r.shape);
    const int step = structure_.site(pair.reference).module.empty() ? r.key.step : -1;
    if (elements > kMostLocalElements || !judged_.emplace(r.key.name, r.role, step, loud).second) return false;
    if (!local_budget_.spend(elements)) return false;
    Case stage = case_of(pair, unit, result);
    const double limit = loud ? kLocalUnits * unit : kFloorFactor * rounding;
    // The formula must explain the reference to its own rounding; where a small jump is judged, well below the jump.
    stage.tolerance = loud ? std::max(2e-5, 6 * reference_precision_.unit(r.key.name)) : limit / 2;
    const std::optional<double> local = error_on_its_inputs(stage, limit);
    if (!local || *local <= limit) return false;
    result.note +=
        fmt::format("{}{:.2g} of the error is made here, the rest inherited", result.note.empty() ? "" : "; ", *local);
    return true;
  }

  Case case_of(const Pair& pair, double unit, const PairResult& result) {
    Case stage(reference_, candidate_, structure_, pair.reference, pair.candidate);
    stage.partner = [this](size_t i) {
      return result_of_[i] == SIZE_MAX ? SIZE_MAX : out_.results[result_of_[i]].pair.candidate;
    };
    stage.items =
        gather_items(reference_, structure_, pair.reference, stage.partner, [this](size_t i) { return is_good(i); });
    stage.weights_r = options_.weights_reference, stage.weights_c = options_.weights_candidate;
    stage.error = result.error.relative;
    stage.tolerance = std::max(2e-5, 6 * unit);
    return stage;
  }

  static void set_floor(double floor, PairResult& result) {
    result.noise_floor = floor;
    result.in_floors = floor > 0 ? result.error.relative / floor : result.error.relative > 0 ? INFINITY : 0;
  }

  // The most specific glob decides: "*" stands for what nothing else names.
  std::optional<double> tolerance_of(const std::string& name) const {
    std::optional<double> out;
    std::ptrdiff_t most = -1;
    for (const auto& [glob, limit] : options_.tolerances) {
      const auto letters = std::count_if(glob.begin(), glob.end(), [](char c) { return c != '*' && c != '?'; });
      if (letters > most && glob_match(glob, name)) out = limit, most = letters;
    }
    return out;
  }

  bool is_bad(const RecordedTensor& r, PairResult& result, FloorWalk::Limits limits, double unit, size_t record) {
    if (result.error.identical) return false;
    if (const std::optional<double> limit = tolerance_of(r.key.name)) {
      result.tolerance = limit;
      set_floor(*limit / out_.floor_factor, result);
      return !(result.error.relative <= *limit);
    }
    if (const auto noise = noise_of_.find(record); noise != noise_of_.end()) {
      const RecordedTensor& n = options_.noise->records[noise->second];
      if (n.load && n.shape == r.shape) {
        const PairError of_noise = pair_error(n.load(), r.load());
        set_floor(std::max(of_noise.relative, rounding_floor(unit, 4 * longest_axis(r.shape))), result);
        return !(result.error.relative <= kNoiseRunFactor * result.noise_floor);
      }
    }
    // Without a partner in the noise run a tensor keeps its limit, told in the floors that all are told in.
    if (options_.noise) set_floor(limits.floor * kFloorFactor / out_.floor_factor, result);
    if (is_picture_dtype(r) && result.error.max_abs <= 1 && r.load)
      return !is_rounding_of_levels(candidate_.records[result.pair.candidate].load(), r.load());
    // Ids and masks are equal or they are not, in whatever width they are kept.
    if (!is_floating(r.dtype) && !is_picture_dtype(r))
      return !(result.error.max_abs == 0 && result.error.relative == 0);
    return is_beyond(result.error, limits, unit);
  }

  const RunView& reference_;
  const RunView& candidate_;
  const Structure& structure_;
  const CompareOptions& options_;
  Comparison& out_;
  RunPrecision reference_precision_, candidate_precision_;
  FloorWalk walk_;
  std::map<std::string, size_t> latest_with_;  // checksum of the reference's values → the latest record that had them
  int confirmations_ = 0, amplified_ = 0;
  Budget local_budget_{kMostLocalInAll};
  std::set<std::tuple<std::string, Role, int, bool>> judged_;  // modules once, stages of the pipeline at each step
  std::vector<size_t> result_of_;
  std::map<size_t, size_t> noise_of_;
};

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
  Walk walk(reference, candidate, structure, options, out);
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
      reference, structure, [&](size_t i) { return walk.result_of(i); }, out);
  if (finds_map && !given.found) {
    CompareOptions again = given;
    again.found = map_by_replay(
        reference, candidate, structure, options, [&](size_t i) { return walk.is_good(i); }, out);
    if (again.found) return compare_runs(reference, candidate, again);
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
