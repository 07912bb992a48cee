#include "zoom/unmatched.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "zoom/factors.h"
#include "zoom/moves.h"

namespace lockstep::zoom {

// What holds a handful of numbers, or true and false, agrees with much by chance: it ends no search.
bool Unmatched::matched(const Side& side, int value) {
  if (partners_.is_neutral(side, value)) return false;
  return !(&side == &yours_ ? partners_.of_yours(value) : partners_.of_reference(value)).empty();
}

std::vector<int> Unmatched::unmatched_ancestors(const Side& side, int value) {
  std::vector<int> out, pending{value};
  std::set<int> seen;
  while (!pending.empty()) {
    const int at = pending.back();
    pending.pop_back();
    if (!seen.insert(at).second || seen.size() > 200) continue;
    if (at != value && (matched(side, at) || side.value(at).step < 0)) continue;
    out.push_back(at);
    if (const int maker = side.value(at).step; maker >= 0)
      for (const Operand& operand : side.step(maker).operands) pending.push_back(operand.value);
  }
  std::sort(out.begin(), out.end(), [&](int a, int b) { return side.value(a).step < side.value(b).step; });
  return out;
}

std::vector<int> Unmatched::frontier(const Side& side, const std::vector<int>& unmatched) {
  std::set<int> out;
  for (const int value : unmatched) {
    if (side.value(value).step < 0) continue;
    for (const Operand& operand : side.step(side.value(value).step).operands)
      if (side.value(operand.value).step >= 0 && matched(side, operand.value)) out.insert(operand.value);
  }
  return {out.begin(), out.end()};
}

std::vector<int> Unmatched::first_of(const Side& side, const std::vector<int>& unmatched) {
  const std::set<int> all(unmatched.begin(), unmatched.end());
  std::vector<int> out;
  for (const int value : unmatched) {
    const int maker = side.value(value).step;
    if (maker < 0 || partners_.is_neutral(side, value)) continue;
    const std::vector<Operand>& operands = side.step(maker).operands;
    if (std::none_of(operands.begin(), operands.end(), [&](const Operand& one) { return all.contains(one.value); }))
      out.push_back(value);
  }
  return out;
}

bool Unmatched::same_line(int a, int b) const {
  const std::vector<Place>&left = yours_.step(a).where, &right = yours_.step(b).where;
  return !left.empty() && !right.empty() && left.front() == right.front();
}

bool Unmatched::by_doubled_values(int c, int r) {
  const std::vector<int> mine = unmatched_ancestors(yours_, c), theirs = unmatched_ancestors(reference_, r);
  const std::vector<int> of_c = frontier(yours_, mine), of_r = frontier(reference_, theirs);
  std::vector<int> lacking;
  for (const int value : of_r)
    if (std::none_of(of_c.begin(), of_c.end(), [&](int other) { return partners_.agree(other, value); }))
      lacking.push_back(value);
  lacking.resize(std::min<size_t>(lacking.size(), 1));
  // Or it never was: what the reference makes at once of values that agree, by the same kind of step.
  const std::vector<int> never = first_of(reference_, theirs);
  for (const int first : of_c)
    for (const int second : of_c) {
      if (first >= second || yours_.is_ancestor(first, second)) continue;
      std::vector<int> moved;
      const int a0 = stripped(yours_, first, moved), b0 = stripped(yours_, second, moved);
      const bool one_source = a0 == b0;  // exchanged by what moved its elements
      const int a = yours_.value(one_source ? first : a0).step, b = yours_.value(one_source ? second : b0).step;
      if (a < 0 || b < 0 || same_line(a, b)) continue;  // one line, executed twice
      std::vector<int> wanted = lacking;
      for (const int value : never)
        if (are_alike(reference_.step(reference_.value(value).step).kind, yours_.step(a).kind) &&
            are_alike(yours_.step(a).kind, yours_.step(b).kind) &&
            checked_numel(reference_.value(value).shape) == checked_numel(yours_.value(a0).shape))
          wanted.push_back(value);
      if (wanted.empty()) continue;
      const std::vector<Match> matches = partners_.of_yours(first);
      const auto twice = std::find_if(matches.begin(), matches.end(), [&](const Match& match) {
        return partners_.agree(second, match.value) && reference_.value(match.value).step >= 0;
      });
      if (twice == matches.end()) continue;
      Region& region = add(Kind::kWiring, c, r);
      region.yours = {a, b};
      if (reference_.value(wanted.front()).step >= 0) region.reference = {reference_.value(wanted.front()).step};
      region.note = fmt::format("yours takes what is {} in the reference twice; the reference also takes {}",
                                described(reference_, twice->value), described(reference_, wanted.front()));
      return true;
    }
  return false;
}

void Unmatched::add_makers_of_what_is_moved(Region& region, int c) {
  const bool only_moved = std::all_of(region.yours.begin(), region.yours.end(), [&](int step) {
    const Step& one = yours_.step(step);
    return one.operands.empty() || one.kind == "setitem" || moves_some_or_joins(one);
  });
  if (!only_moved) return;
  std::vector<int> makers;
  for (const int value : frontier(yours_, unmatched_ancestors(yours_, c))) {
    std::vector<int> moved;
    if (const int maker = yours_.value(stripped(yours_, value, moved)).step; maker >= 0) makers.push_back(maker);
  }
  region.yours.insert(region.yours.end(), makers.begin(), makers.end());
}

bool Unmatched::by_factor(int c, int r) {
  const auto is_multiple = [&](int mine, int theirs) {
    const auto a = yours_.numbers(mine), b = reference_.numbers(theirs);
    return a && b && a->count() == b->count() ? common_factor(*a, *b, partners_.tolerance()) : std::nullopt;
  };
  if (!is_multiple(c, r)) return false;
  const std::vector<int> theirs = unmatched_ancestors(reference_, r);
  for (const int mine : first_of(yours_, unmatched_ancestors(yours_, c)))
    for (const int other : theirs) {
      const auto factor = is_multiple(mine, other);
      if (!factor) continue;
      Region& region = add(Kind::kOperation, mine, other);
      region.yours = {yours_.value(mine).step};
      if (reference_.value(other).step >= 0) region.reference = {reference_.value(other).step};
      region.note = fmt::format("yours is {:.6g} times the reference's", *factor);
      return true;
    }
  return false;
}

int Unmatched::without_factor(const Side& side, int input, int weight, const Side& other, int folded) {
  std::vector<int> moved;
  const int maker = side.value(stripped(side, input, moved)).step;
  const auto plain = side.numbers(weight), with = other.numbers(folded);
  if (maker < 0 || !is_product(side.step(maker)) || !plain || !with) return -1;
  const Terms terms = terms_of(side, maker, false, [](int) { return false; });
  if (terms.values.size() != 2 || terms.number != 1) return -1;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const auto factors = side.numbers(terms.values[i].value);
    if (!terms.values[i].inverse && !terms.values[1 - i].inverse && factors &&
        is_scaled_by(*with, *plain, *factors, partners_.tolerance()))
      return terms.values[1 - i].value;
  }
  return -1;
}

bool Unmatched::by_folded_weight(const Step& step_c, const Step& step_r) {
  if (step_c.kind != "linear" || step_r.kind != "linear") return false;
  const int mine = step_c.operand("input"), theirs = step_r.operand("input");
  const int weight_c = step_c.operand("weight"), weight_r = step_r.operand("weight");
  if (mine < 0 || theirs < 0 || weight_c < 0 || weight_r < 0) return false;
  const int user_c = yours_.value(step_c.outputs.front()).step, user_r = reference_.value(step_r.outputs.front()).step;
  if (const int plain = without_factor(reference_, theirs, weight_r, yours_, weight_c);
      plain >= 0 && !partners_.agree(mine, plain)) {
    locate(mine, plain, user_c, user_r);
    return true;
  }
  if (const int plain = without_factor(yours_, mine, weight_c, reference_, weight_r);
      plain >= 0 && !partners_.agree(plain, theirs)) {
    locate(plain, theirs, user_c, user_r);
    return true;
  }
  return false;
}

}  // namespace lockstep::zoom
