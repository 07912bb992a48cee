#include "compare/pair_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/folder.h"
#include "base/names.h"
#include "capture/checksum.h"
#include "compare/alignment.h"
#include "compare/pictures.h"
#include "diagnose/case/neighbours.h"
#include "diagnose/diagnose.h"
#include "diagnose/replay/replay_search.h"
#include "diagnose/replay/stage.h"
#include "measure/region.h"
#include "measure/statistics_error.h"

namespace lockstep {
namespace {

constexpr size_t kMostInside = 80;      // records of a call whose error may have gone into its result
constexpr int kMostConfirmations = 64;  // stages looked at closely before an error is believed
constexpr double kLoud = 1e-3;          // errors below are told from rounding by their size alone
constexpr double kLocalUnits = 4;       // unit roundoffs a stage may add, its formula recomputed from its own inputs
constexpr int64_t kMostLocalElements = 1 << 22, kMostLocalInAll = int64_t{1} << 27;
constexpr int kMostAsked = 8;          // small errors that a cause is looked for
constexpr double kNoiseRunFactor = 3;  // a third run may be this much further off than the second

bool is_picture_dtype(const RecordedTensor& record) {
  return record.dtype == DType::kU8 && record.shape.size() >= 3;
}

int64_t longest_axis(const Shape& shape) {
  return shape.empty() ? 1 : *std::max_element(shape.begin(), shape.end());
}

void set_floor(double floor, PairResult& result) {
  result.noise_floor = floor;
  result.in_floors = floor > 0 ? result.error.relative / floor : result.error.relative > 0 ? INFINITY : 0;
}

}  // namespace

PairWalk::PairWalk(const RunView& reference, const RunView& candidate, const Structure& structure,
                   const CompareOptions& options, Comparison& out)
    : reference_(reference),
      candidate_(candidate),
      structure_(structure),
      options_(options),
      out_(out),
      reference_precision_(reference),
      candidate_precision_(candidate),
      local_budget_(kMostLocalInAll),
      result_of_(reference.records.size(), SIZE_MAX) {
  if (!options.noise) return;
  out.floor_factor = kNoiseRunFactor;
  const Pairing noise = pair_runs(reference, *options.noise, {}, options.only);
  for (const Pair& pair : noise.pairs) noise_of_[pair.reference] = pair.candidate;
}

void PairWalk::visit(const Pair& pair) {
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
  if (bad ? !only_amplifies(pair, unit, limits, result)
          : adds_to_the_noise(pair, unit, result) || differs_on_the_same_inputs(pair, unit, result))
    result.state = PairState::kBad;
  else
    walk_.pass(result.error);
  remember(pair.reference, result);
}

bool PairWalk::is_good(size_t record) const {
  const size_t i = result_of_[record];
  return i != SIZE_MAX && (out_.results[i].state == PairState::kGood || out_.results[i].state == PairState::kLayout);
}
double PairWalk::unit_of(const RecordedTensor& r, const RecordedTensor& c) const {
  const double run = std::max(reference_precision_.unit(r.key.name), candidate_precision_.unit(c.key.name));
  const bool both_float = is_floating(r.dtype) && is_floating(c.dtype);
  return both_float ? std::max(run, std::min(unit_roundoff(r.dtype), unit_roundoff(c.dtype))) : run;
}

void PairWalk::remember(size_t record, PairResult& result) {
  result_of_[record] = out_.results.size();
  out_.results.push_back(std::move(result));
}

bool PairWalk::is_intact(const RecordedTensor& tensor, const char* side, PairResult& result) {
  std::string why = "does not hold the values of its capture";
  try {
    if (!tensor.load || tensor.checksum.empty() ||
        checksum_text(tensor.load().contiguous().contiguous_bytes()) == tensor.checksum)
      return true;
  } catch (const Error& error) {
    if (system_refused(error)) throw;
    why = std::string("cannot be read: ") + error.what();
    result.state = PairState::kUnread;
  }
  ++out_.damaged;
  result.note += fmt::format("{}the file of the {} {}", result.note.empty() ? "" : "; ", side, why);
  return false;
}

bool PairWalk::measure(const RecordedTensor& r, const RecordedTensor& c, double unit, PairResult& result) {
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

void PairWalk::judge_by_statistics(double least, double unit, PairResult& result) {
  const double inherited = walk_.limits(0, 0, 0).floor;
  result.noise_floor = std::max({kLoud, 64 * unit, inherited}) / kFloorFactor;
  if (!(least > kFloorFactor * std::max(result.noise_floor, inherited))) return;
  result.state = PairState::kBad;
  result.error.relative = least;
  result.in_floors = least / result.noise_floor;
  result.note += fmt::format(", but the statistics differ by at least {:.2g}", least);
  ++out_.compared;
}

FloorWalk::Limits PairWalk::limits_for(size_t record, const RecordedTensor& r, const RecordedTensor& c, double unit,
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
// the candidate's inputs, gives the candidate's output, the stage is right and the error inherited. Where an input was
// not recorded it may be rounded: what the formula then makes of that is no error of the stage.
bool PairWalk::only_amplifies(const Pair& pair, double unit, const FloorWalk::Limits& limits, PairResult& result) {
  const RecordedTensor& r = reference_.records[pair.reference];
  if (r.role != Role::kOutput || ++confirmations_ > kMostConfirmations || !std::isfinite(result.error.relative))
    return false;
  double input_error = 0;
  bool unknown = false;
  for (const size_t input :
       structure_.records_of(structure_.site(pair.reference).module, Role::kInput, pair.reference)) {
    if (result_of_[input] == SIZE_MAX)
      unknown = true;
    else if (!is_good(input))
      return false;
    else
      input_error = std::max(input_error, out_.results[result_of_[input]].error.relative);
  }
  if (!unknown && input_error == 0) return false;
  Case stage = case_of(pair, unit, result);
  std::string words = fmt::format("amplifies the error of its input by {:.3g}; right on its own inputs",
                                  result.error.relative / input_error);
  if (unknown) {
    const std::optional<Values> moved = moved_by_rounding(stage, unit);
    if (!moved) return false;
    const PairError by = pair_error(Tensor::from<float>(moved->shape, moved->v), r.load());
    if (is_beyond(result.error, {limits.floor + by.relative, limits.slice_floor + by.worst_slice}, unit)) return false;
    words = fmt::format("its input was not recorded; rounding that alone moves it by {:.2g}", by.relative);
  } else if (!is_right_on_its_inputs(stage)) {
    return false;
  }
  result.note += (result.note.empty() ? "" : "; ") + words;
  if (amplified_++ < 2) out_.notes.push_back(fmt::format("{} {}", to_string(r.key), result.note));
  return true;
}

// Far above what this stage rounds to, the error says little: a bug hides in what was inherited. And an error that is
// small beside its neighbours' may still be far above that of the stage's own inputs. Then the stage is judged by
// itself, once for each of its names: the reference's formula on the candidate's own inputs.
bool PairWalk::adds_to_the_noise(const Pair& pair, double unit, PairResult& result) {
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
  // No stage makes more than there is: then it was not made from these inputs.
  if (!local || *local <= limit || *local > 2 * result.error.relative) return false;
  result.made_here = true;
  result.note +=
      fmt::format("{}{:.2g} of the error is made here, the rest inherited", result.note.empty() ? "" : "; ", *local);
  return true;
}

// Given the very same numbers a stage gives others, by less than rounding may do: a number in it is another (an eps) or
// it rounds otherwise. The first is believed where a cause explains the difference, of which noise leaves nothing to
// explain; once for each code.
bool PairWalk::differs_on_the_same_inputs(const Pair& pair, double unit, PairResult& result) {
  constexpr double kLeastUnits = 4;
  const RecordedTensor& r = reference_.records[pair.reference];
  if (!options_.diagnose || options_.noise || !options_.tolerances.empty() || !is_floating(r.dtype)) return false;
  if (!result.fed || *result.fed > 0 || result.error.relative < kLeastUnits * unit) return false;
  if (structure_.is_container(structure_.site(pair.reference).module)) return false;
  if (checked_numel(r.shape) > kMostLocalElements || !asked_of_.insert(place_of_code(r.key.name)).second) return false;
  if (!local_budget_.spend(checked_numel(r.shape)) || !is_a_mistake(result)) return false;
  result.made_here = true;
  result.note +=
      fmt::format("{}given the very same numbers, and a cause explains what differs", result.note.empty() ? "" : "; ");
  return true;
}

bool PairWalk::is_a_mistake(const PairResult& result) {
  if (++asked_ > kMostAsked) return false;
  const Pair& pair = result.pair;
  Case stage = case_of(pair, unit_of(reference_.records[pair.reference], candidate_.records[pair.candidate]), result);
  stage.tolerance = std::min(stage.tolerance, result.error.relative / 4);
  stage.floor = result.noise_floor;
  const std::vector<Finding> causes = diagnose(stage);
  return names_a_mistake(causes) && causes[0].residual <= stage.tolerance;  // not what noise leaves over
}

Case PairWalk::case_of(const Pair& pair, double unit, const PairResult& result) {
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

std::optional<double> PairWalk::tolerance_of(const std::string& name) const {
  std::optional<double> out;
  std::ptrdiff_t most = -1;
  for (const auto& [glob, limit] : options_.tolerances) {
    const auto letters = std::count_if(glob.begin(), glob.end(), [](char c) { return c != '*' && c != '?'; });
    if (letters > most && glob_match(glob, name)) out = limit, most = letters;
  }
  return out;
}

bool PairWalk::is_bad(const RecordedTensor& r, PairResult& result, FloorWalk::Limits limits, double unit,
                      size_t record) {
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
  if (!is_floating(r.dtype) && !is_picture_dtype(r)) return !(result.error.max_abs == 0 && result.error.relative == 0);
  return is_beyond(result.error, limits, unit);
}

}  // namespace lockstep
