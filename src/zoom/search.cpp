#include "zoom/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "zoom/expand.h"
#include "zoom/partners.h"
#include "zoom/passing_lines.h"
#include "zoom/transplants.h"

namespace lockstep::zoom {
namespace {

constexpr int kMostPairs = 400;     // looked at in one search
constexpr int kMostRoundings = 24;  // pairs asked whether rounding alone explains them
constexpr double kLargestJump = 1e-2;
constexpr double kMostOutputNoise = 4e-6;  // relative
constexpr double kClearly = 16;            // times the noise: a difference that is none
constexpr double kSmallestJump = 6;        // tolerances
constexpr double kMostProofWork = 2e9;     // and in proving its answer
constexpr double kLeastProof = 1e-4;       // relative: replayed results round otherwise

bool is_commutative(const Step& step) {
  return step.kind == "add" || step.kind == "mul" || step.kind == "maximum" || step.kind == "minimum";
}

// Takes some of the elements of its input, whatever a framework calls it.
bool selects(const Step& step) {
  static const std::set<std::string_view> kKinds{"getitem",      "split", "narrow", "select",
                                                 "index_select", "real",  "imag"};
  return kKinds.contains(step.kind) && step.operand("input") >= 0;
}

class Search : public Transplants {
 public:
  using Transplants::Transplants;
  double roundoff = unit_roundoff(DType::kF32);  // of the coarser side
  double output_noise = 0;                       // what the call's roundings may come to in its outputs

  // What made c differ from r. `user_c`, `user_r`: the steps that take them; -1: they are the call's outputs.
  void locate(int c, int r, int user_c, int user_r) override {
    if (!pairs_.insert({c, r}).second || static_cast<int>(pairs_.size()) > kMostPairs || partners_.agree(c, r)) return;
    user_r_ = user_r;
    std::vector<int> moved_c, moved_r;
    const int c0 = stripped(yours_, c, moved_c), r0 = stripped(reference_, r, moved_r);
    if ((c0 != c || r0 != r) && partners_.agree(c0, r0)) return blame_arrangement(c, r, c0, r0, moved_c, moved_r);
    if (c0 != c || r0 != r) pairs_.insert({c0, r0});
    if (is_amplified_rounding(c0, r0)) return;
    if (stands_elsewhere(c0, r0, user_c, user_r)) return;
    const int maker_c = yours_.value(c0).step, maker_r = reference_.value(r0).step;
    if (maker_c >= 0 && maker_r < 0 && by_steps_behind(c0, r0)) return;
    if (maker_c < 0 || maker_r < 0) return blame_leaf(c0, r0, user_c, user_r);
    if (by_same_kind(c0, r0, maker_c, maker_r)) return;
    if (by_sources(c0, r0, maker_c, maker_r)) return;
    if (by_factor(c0, r0)) return;
    if (by_parts(c0, r0)) return;
    if (by_transplant(c0, r0, user_c, user_r)) return;
    // Before what moved them they may lie in ways that cannot be told from each other.
    if ((c0 != c || r0 != r) && by_transplant(c, r, user_c, user_r)) return;
    blame_unmatched(c0, r0);
  }

  // Whoever takes the call's result takes it as it lies: of one shape, it must lie as the reference's does.
  void look_at_output(int c, int r) {
    Agreement found = partners_.agreement(c, r);
    if (const auto mine = yours_.numbers(c), theirs = reference_.numbers(r); !found && mine && theirs)
      found = agreement_of(*mine, *theirs, output_noise);
    if (!found) return locate(c, r, -1, -1);
    const bool moved = found.arrangement == Arrangement::kPermuted || found.arrangement == Arrangement::kReordered;
    if (!moved || yours_.value(c).shape != reference_.value(r).shape) return;
    std::vector<int> moved_c, moved_r;
    stripped(yours_, c, moved_c);
    stripped(reference_, r, moved_r);
    if (moved_c.empty() && yours_.value(c).step >= 0) moved_c = {yours_.value(c).step};
    blame_layout(c, r, moved_c, moved_r);
  }

 private:
  // A value of yours that the reference has elsewhere, or the reverse.
  bool stands_elsewhere(int c, int r, int user_c, int user_r) {
    if (is_one_line_of_both(c, r)) return false;
    if (!partners_.is_neutral(yours_, c)) {
      const std::vector<Match> elsewhere = partners_.of_yours(c);
      int latest = -1;  // the nearest of them: what lies between is what is missing
      for (const Match& match : elsewhere)
        if (match.value != r && reference_.is_ancestor(match.value, r)) latest = std::max(latest, match.value);
      if (latest >= 0) return blame_missing(c, r, latest, user_c);
      if (!elsewhere.empty() && yours_.value(c).origin != Origin::kParameter)
        return blame_wiring(c, r, elsewhere.front().value, user_c, user_r);
    }
    if (!partners_.is_neutral(reference_, r)) {
      const std::vector<Match> elsewhere = partners_.of_reference(r);
      int latest = -1;
      for (const Match& match : elsewhere)
        if (match.value != c && yours_.is_ancestor(match.value, c)) latest = std::max(latest, match.value);
      if (latest >= 0) return blame_extra(c, r, latest);
    }
    return false;
  }

  // Both programs run the same line of the same file here: it is neither missing nor too much, whatever else its result
  // agrees with. Something before it was done twice, or not at all.
  bool is_one_line_of_both(int c, int r) const {
    const int maker_c = yours_.value(c).step, maker_r = reference_.value(r).step;
    if (maker_c < 0 || maker_r < 0) return false;
    const Step &mine = yours_.step(maker_c), &theirs = reference_.step(maker_r);
    return mine.kind == theirs.kind && !mine.where.empty() && !theirs.where.empty() &&
           mine.where.front() == theirs.where.front() && argument_differences(mine, theirs).empty();
  }

  // The same kind of step on both sides: its operands are paired, and those that differ are followed.
  bool by_same_kind(int c, int r, int maker_c, int maker_r) {
    const Step step_c = yours_.step(maker_c), step_r = reference_.step(maker_r);
    const bool one_line = is_one_line_of_both(c, r);
    if (is_sum(step_c) && is_sum(step_r) && !one_line) return by_terms(c, r, maker_c, maker_r, true);
    if (is_product(step_c) && is_product(step_r) && !one_line) return by_terms(c, r, maker_c, maker_r, false);
    if (selects(step_c) && selects(step_r)) return by_selection(c, r, maker_c, maker_r);
    if (step_c.kind != step_r.kind || step_c.outputs.size() != step_r.outputs.size()) return false;
    std::vector<std::pair<int, int>> different;
    std::vector<Partner> partners;
    std::vector<ArgumentDifference> arguments = argument_differences(step_c, step_r);
    std::vector<Operand> left = step_c.operands, right = step_r.operands;
    if (left.size() == 2 && right.size() == 2 && are_crossed(step_c, left, right))
      std::swap(right[0].value, right[1].value);
    for (size_t i = 0; i < left.size(); ++i) {
      int other = operand_like(left[i], i, left.size(), right);
      if (step_c.kind == "attention" && other >= 0) {
        const int64_t mine = checked_numel(yours_.value(left[i].value).shape),
                      theirs = checked_numel(reference_.value(other).shape);
        if (mine < theirs) other = before_repetition(reference_, other, mine);
        if (mine > theirs) left[i].value = before_repetition(yours_, left[i].value, theirs);
      }
      partners.push_back({left[i].parameter, left[i].value, -1, {}});
      if (other < 0) {
        arguments.push_back({left[i].parameter, "given", "absent"});
        continue;
      }
      partners.back().agreement = partners_.agreement(left[i].value, other);
      if (partners.back().agreement)
        partners.back().reference = other;
      else
        different.emplace_back(left[i].value, other);
    }
    for (size_t i = 0; i < right.size(); ++i)
      if (operand_like(right[i], i, right.size(), left) < 0)
        arguments.push_back({right[i].parameter, "absent", "given"});
    if (different.empty()) {
      if (arguments.empty() && makes_yours(c, r, step_r, partners)) {
        blame_operands(c, r, partners);
        return true;
      }
      blame_step(c, r, maker_c, maker_r, std::move(partners), std::move(arguments));
      return true;
    }
    if (different.size() == 2 && by_folded_weight(step_c, step_r)) return true;
    for (const auto& [mine, theirs] : different) locate(mine, theirs, maker_c, maker_r);
    return true;
  }

  // Whether the reference's step makes its own result of its operands, and yours of yours: then it is right, and they
  // are not.
  bool makes_yours(int c, int r, const Step& step_r, const std::vector<Partner>& partners) {
    const auto mine = yours_.numbers(c);
    Given given;
    std::set<int> from;
    for (const Partner& partner : partners) {
      const auto theirs = reference_.numbers(partner.reference), ours = yours_.numbers(partner.yours);
      if (!theirs || !ours || theirs->count() > kMostReplay) return false;
      auto fits = arranged_like(*ours, *theirs, agreement_of(*theirs, *ours, partners_.tolerance()));
      if (!fits) return false;
      given[partner.reference] = std::make_shared<Numbers>(std::move(*fits));
      from.insert(partner.reference);
    }
    if (!mine || given.empty() || !may_replay(r, from, 2)) return false;
    const auto own = evaluate(reference_, step_r, r, [&](int value) { return reference_.numbers(value); });
    if (!own || !agreement_of(*reference_.numbers(r), *own, partners_.tolerance())) return false;
    const auto made = evaluate(reference_, step_r, r, [&](int value) {
      const auto at = given.find(value);
      return at == given.end() ? reference_.numbers(value) : at->second;
    });
    return made && agreement_of(*mine, *made, partners_.tolerance()).arrangement >= Arrangement::kFlat;
  }

  // The operands stand in each other's places: of a sum that says nothing, and of a product of matrices, which may have
  // been transposed as a whole, only where they fit no other way.
  bool are_crossed(const Step& step, const std::vector<Operand>& left, const std::vector<Operand>& right) {
    if (is_commutative(step)) return partners_.agree(left[0].value, right[1].value);
    return step.kind == "matmul" && !partners_.agree(left[0].value, right[0].value) &&
           !partners_.agree(left[1].value, right[1].value) &&
           (partners_.agree(left[0].value, right[1].value) || partners_.agree(left[1].value, right[0].value));
  }

  // Parts of something: of the same thing they were cut otherwise, else that is followed.
  bool by_selection(int c, int r, int maker_c, int maker_r) {
    const int whole_c = yours_.step(maker_c).operand("input"), whole_r = reference_.step(maker_r).operand("input");
    const Agreement agreement = partners_.agreement(whole_c, whole_r);
    if (!agreement && checked_numel(yours_.value(whole_c).shape) != checked_numel(reference_.value(whole_r).shape))
      return false;
    if (agreement)
      blame_step(c, r, maker_c, maker_r, {{"input", whole_c, whole_r, agreement}}, {});
    else
      locate(whole_c, whole_r, maker_c, maker_r);
    return true;
  }

  static int operand_like(const Operand& operand, size_t place, size_t count, const std::vector<Operand>& others) {
    for (const Operand& other : others)
      if (other.parameter == operand.parameter) return other.value;
    return others.size() == count && place < others.size() && others.size() == 1 ? others[place].value : -1;
  }

  // Both are made of one value each by steps that only move elements, however these cut and join them.
  bool by_sources(int c, int r, int maker_c, int maker_r) {
    std::vector<int> moved_c, moved_r;
    const int from_c = moved_from(yours_, c, moved_c), from_r = moved_from(reference_, r, moved_r);
    if (from_c < 0 || from_r < 0 || (from_c == c && from_r == r)) return false;
    if (checked_numel(yours_.value(from_c).shape) != checked_numel(reference_.value(from_r).shape)) return false;
    if (partners_.agree(from_c, from_r))
      blame_layout(c, r, moved_c, moved_r);
    else
      locate(from_c, from_r, maker_c, maker_r);
    return true;
  }

  // The two agree no longer, but only because a step magnifies the rounding of what it was given (the cosine of a large
  // angle does): of your values the reference's steps make your result.
  bool is_amplified_rounding(int c, int r) {
    const auto mine = yours_.numbers(c), theirs = reference_.numbers(r);
    if (!mine || !theirs || mine->count() > kMostReplay || ++roundings_ > kMostRoundings) return false;
    if (!agreement_of(*mine, *theirs, kLargestJump)) return false;
    std::map<int, int> agreeing;  // the reference's value → yours
    std::set<int> seen, from;
    std::vector<int> pending{r};
    while (!pending.empty()) {
      const int at = pending.back();
      pending.pop_back();
      if (!seen.insert(at).second) continue;
      if (seen.size() > 200) return false;
      const std::vector<Match> matches = partners_.of_reference(at);
      if (at != r && !matches.empty()) {
        agreeing[at] = matches.front().value;
        from.insert(at);
        continue;
      }
      if (const int maker = reference_.value(at).step; maker >= 0)
        for (const Operand& operand : reference_.step(maker).operands) pending.push_back(operand.value);
    }
    if (from.empty() || !may_replay(r, from, 2)) return false;
    Given given;
    for (const auto& [at, other] : agreeing) {
      const auto here = reference_.numbers(at), there = yours_.numbers(other);
      const auto fits = arranged_like(*there, *here, agreement_of(*here, *there, partners_.tolerance()));
      if (fits) given[at] = std::make_shared<Numbers>(*fits);
    }
    if (given.empty()) return false;
    const auto made = replay(reference_, r, given);
    if (!made) return false;
    if (agreement_of(*mine, *made, partners_.tolerance())) return true;
    // Values in between may have been rounded otherwise, or not at all: one more rounding of what goes in is as good.
    for (auto& [value, numbers] : given) {
      Numbers shaken = *numbers;
      for (size_t i = 0; i < shaken.values.size(); ++i)
        shaken.values[i] *= 1 + static_cast<float>((i * 2654435761U >> 7 & 1 ? 1 : -1) * roundoff);
      numbers = std::make_shared<Numbers>(std::move(shaken));
    }
    const auto other = replay(reference_, r, given);
    if (!other || other->count() != made->count()) return false;
    const double shift = relative_distance(other->values.data(), made->values.data(), made->count());
    return static_cast<bool>(agreement_of(*mine, *theirs, 4 * shift));
  }

  // Fused on one side, written out on the other: the fused one is taken apart.
  bool by_parts(int c, int r) {
    const double tolerance = std::max(partners_.tolerance(), 1e-4);
    const bool opened_c = expand(yours_, c, tolerance), opened_r = expand(reference_, r, tolerance);
    for (const int maker_c : {yours_.value(c).step, yours_.value(c).expanded})
      for (const int maker_r : {reference_.value(r).step, reference_.value(r).expanded}) {
        const bool fused = maker_c == yours_.value(c).step && maker_r == reference_.value(r).step;
        if (maker_c < 0 || maker_r < 0 || fused || !(opened_c || opened_r)) continue;
        if (by_same_kind(c, r, maker_c, maker_r)) return true;
      }
    return false;
  }

  // The reference has it from elsewhere (computed before the call), yours makes it here: in one of these steps.
  bool by_steps_behind(int c, int r) {
    if (reference_.value(r).origin != Origin::kConstant || partners_.is_neutral(reference_, r)) return false;
    if (checked_numel(yours_.value(c).shape) != checked_numel(reference_.value(r).shape)) return false;
    Region& region = add(Kind::kNotNarrowed, c, r);
    for (const int value : unmatched_ancestors(yours_, c))
      if (yours_.value(value).step >= 0) region.yours.push_back(yours_.value(value).step);
    if (user_r_ >= 0) region.reference.push_back(user_r_);
    region.note = "the reference was given this value, yours makes it here";
    return true;
  }

  void blame_unmatched(int c, int r) {
    if (by_doubled_values(c, r)) return;
    Region& region = add(Kind::kNotNarrowed, c, r);
    for (const int value : unmatched_ancestors(yours_, c))
      if (yours_.value(value).step >= 0) region.yours.push_back(yours_.value(value).step);
    for (const int value : unmatched_ancestors(reference_, r))
      if (reference_.value(value).step >= 0) region.reference.push_back(reference_.value(value).step);
    if (region.yours.size() == 1 && region.reference.size() <= 2) region.kind = Kind::kOperation;
    add_makers_of_what_is_moved(region, c);
    add_idle_selections(region);
    add_rearranging_steps(region);
  }

  std::set<std::pair<int, int>> pairs_;
  int roundings_ = 0;
};

double distance(const Side& a, int x, const Side& b, int y) {
  const auto left = a.numbers(x), right = b.numbers(y);
  if (!left || !right || left->count() != right->count()) return 1;
  return relative_distance(left->values.data(), right->values.data(), left->count());
}

// The coarsest rounding of a side: of all that it computes, or only of what it is given and gives back.
double coarsest(const Side& side, bool all) {
  double worst = unit_roundoff(DType::kF32);
  const auto take = [&](int value) {
    const Tensor& tensor = side.value(value).tensor;
    if (tensor.defined() && is_floating(tensor.dtype())) worst = std::max(worst, unit_roundoff(tensor.dtype()));
  };
  for (int i = 0; i < side.value_count(); ++i)
    if (all || (side.value(i).step < 0 && side.value(i).origin != Origin::kConstant)) take(i);
  for (const auto& [path, value] : side.tape().outputs) take(value);
  return worst;
}

// A format that only one side has, and only in between, is no noise: it may be what is wrong.
double roundoff_of(const Side& reference, const Side& yours) {
  const double between = std::min(coarsest(reference, true), coarsest(yours, true));
  return std::max({coarsest(reference, false), coarsest(yours, false), between});
}

// Roundings add up like the steps of a random walk. In a coarse format that is as much as many a mistake: there a
// difference is looked into all the same.
double noise_of_outputs(const Side& reference, const Side& yours, double roundoff) {
  const size_t steps = std::max(reference.tape().steps.size(), yours.tape().steps.size());
  return std::min(2 * roundoff * std::sqrt(static_cast<double>(steps)), kMostOutputNoise);
}

// (yours, the reference's) by their places. The code between modules passes on many tensors, one made of the other:
// they go by their names, and what follows the first that differs is its consequence.
std::vector<std::pair<int, int>> paired_outputs(const Side& reference, const Side& yours, double noise) {
  std::vector<std::pair<int, int>> out;
  const auto& outputs_c = yours.tape().outputs;
  const auto& outputs_r = reference.tape().outputs;
  if (!yours.tape().glue || !reference.tape().glue) {
    for (size_t i = 0; i < std::min(outputs_c.size(), outputs_r.size()); ++i)
      out.emplace_back(outputs_c[i].second, outputs_r[i].second);
    return out;
  }
  for (const auto& [path, r] : outputs_r) {
    const auto c = std::find_if(outputs_c.begin(), outputs_c.end(), [&](const auto& one) { return one.first == path; });
    if (c == outputs_c.end()) continue;
    const double error = distance(yours, c->second, reference, r);
    if (error > kClearly * noise) return {{c->second, r}};
    out.emplace_back(c->second, r);
  }
  return out;
}

Jump largest_jump(Side& reference, Side& yours, Partners& partners) {
  Jump found;
  // Norms are cheap to take apart, and what hides in one is its eps.
  for (int r = 0, count = reference.value_count(); r < count; ++r)
    if (const int maker = reference.value(r).step; maker >= 0 && reference.step(maker).kind.ends_with("_norm"))
      expand(reference, r, std::max(partners.tolerance(), 1e-4));
  const auto recorded = static_cast<int>(yours.tape().steps.size());
  for (int i = 0; i < recorded; ++i) {
    const Step step = yours.step(i);
    if (step.simple || step.outputs.size() != 1 || only_moves(step)) continue;
    const int c = step.outputs.front();
    const bool fed = std::all_of(step.operands.begin(), step.operands.end(), [&](const Operand& operand) {
      return partners.is_neutral(yours, operand.value) || !partners.of_yours(operand.value).empty();
    });
    if (!fed || partners.is_neutral(yours, c) || !partners.of_yours(c).empty()) continue;
    for (int r = 0; r < reference.value_count(); ++r) {
      if (reference.value(r).step < 0 || !may_agree(yours.totals(c), reference.totals(r), kLargestJump)) continue;
      const double error = distance(yours, c, reference, r);
      if (error < kLargestJump && error > kSmallestJump * partners.tolerance() && error > found.error)
        found = {i, reference.value(r).step, error};
    }
  }
  return found;
}

}  // namespace

Answer search(Side& reference, Side& yours, double input_noise) {
  Answer answer;
  const auto& outputs_c = yours.tape().outputs;
  const auto& outputs_r = reference.tape().outputs;
  if (outputs_c.empty() || outputs_r.empty()) {
    answer.incomplete = "the call returned no tensor that was recorded";
    return answer;
  }
  // The roundings of both sides, a few of them in a row; the larger the divergence, the more of a difference is noise.
  const double roundoff = roundoff_of(reference, yours);
  const double noise = std::max(4 * roundoff, input_noise);
  const std::vector<std::pair<int, int>> outputs = paired_outputs(reference, yours, noise);
  for (const auto& [c, r] : outputs)
    answer.output_error = std::max(answer.output_error, distance(yours, c, reference, r));
  answer.tolerance = std::clamp(std::sqrt(noise * answer.output_error), 2 * noise, 0.02);
  reference.link_constants(answer.tolerance);
  yours.link_constants(answer.tolerance);
  expand_complex_products(reference);
  expand_complex_products(yours);
  Search searching(reference, yours, answer.tolerance);
  searching.roundoff = roundoff;
  searching.output_noise = noise_of_outputs(reference, yours, roundoff);
  for (const auto& [c, r] : outputs) searching.look_at_output(c, r);
  answer.regions = searching.take_regions();
  tidy(answer.regions, reference, yours, searching.partners());
  answer.proof =
      prove(answer.regions, reference, yours, outputs, std::max(answer.tolerance, kLeastProof), kMostProofWork);
  if (answer.proof == Proof::kProven)
    for (Region& region : answer.regions) region.proven = true;
  add_passing_lines(answer.regions, yours);
  answer.agrees = answer.regions.empty();
  if (answer.agrees) answer.jump = largest_jump(reference, yours, searching.partners());
  for (const Step& step : yours.tape().steps)
    for (const int output : step.outputs) {
      if (yours.value(output).made_here || step.simple) continue;
      ++answer.compared;
      answer.matched += !searching.partners().of_yours(output).empty();
    }
  return answer;
}

}  // namespace lockstep::zoom
