#include "zoom/sums_and_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "zoom/expand.h"

namespace lockstep::zoom {
namespace {

// A factor of ones, or a term of zeros: the result is what one operand was.
bool changes_nothing(const Side& side, int value, double tolerance) {
  const int maker = side.value(value).step;
  const auto result = side.numbers(value);
  if (maker < 0 || !result) return false;
  const std::vector<Operand>& operands = side.step(maker).operands;
  return operands.size() > 1 && std::any_of(operands.begin(), operands.end(), [&](const Operand& operand) {
           const auto given = side.numbers(operand.value);
           return given && given->count() == result->count() &&
                  relative_distance(result->values.data(), given->values.data(), result->count()) <= tolerance;
         });
}

// The term that holds one number in all its elements, and is as good as that number.
std::vector<Term>::iterator uniform_term(const Side& side, Terms& terms) {
  return std::find_if(terms.values.begin(), terms.values.end(), [&](const Term& term) {
    return side.totals(term.value).uniform && side.numbers(term.value) != nullptr;
  });
}

// Terms that are as good as numbers become numbers, until the two sides have as many terms. Returns what they were.
std::vector<int> take_as_numbers(const Side& side, Terms& terms, size_t others, bool sum) {
  std::vector<int> out;
  for (auto at = uniform_term(side, terms); terms.values.size() > others && at != terms.values.end();
       at = uniform_term(side, terms)) {
    const double number = side.numbers(at->value)->values.front();
    if (sum)
      terms.number += at->inverse ? -number : number;
    else
      terms.number *= at->inverse ? 1 / number : number;
    out.push_back(at->value);
    terms.values.erase(at);
  }
  return out;
}

}  // namespace

bool SumsAndProducts::by_terms(int c, int r, int maker_c, int maker_r, bool sum) {
  // What agrees is one term, but for one that hides another: it agrees because it changes nothing.
  const auto open_c = [&](int value) {
    return partners_.of_yours(value).empty() || changes_nothing(yours_, value, partners_.tolerance());
  };
  const auto open_r = [&](int value) {
    return partners_.of_reference(value).empty() || changes_nothing(reference_, value, partners_.tolerance());
  };
  Terms left = terms_of(yours_, maker_c, sum, open_c), right = terms_of(reference_, maker_r, sum, open_r);
  std::vector<Partner> partners;
  do pair_terms(left, right, partners, sum);
  while (sum && (open_a_bias(yours_, left, right) || open_a_bias(reference_, right, left)));
  if (blame_signs(c, r, left, right, partners, sum) && left.values.empty() && right.values.empty()) return true;
  const std::vector<int> numbers_c = take_as_numbers(yours_, left, right.values.size(), sum),
                         numbers_r = take_as_numbers(reference_, right, left.values.size(), sum);
  const double precision = numbers_c.empty() && numbers_r.empty() ? 1e-6 : std::max(1e-6, partners_.tolerance());
  const bool same_number =
      std::fabs(left.number - right.number) <= precision * std::max(std::fabs(left.number), std::fabs(right.number));
  if (left.values.size() == 1 && right.values.size() == 1) {
    locate(left.values[0].value, right.values[0].value, maker_c, maker_r);
    return true;
  }
  if (left.values.empty() && right.values.empty()) {
    Region& region =
        blame_chain(same_number ? Kind::kOperation : Kind::kArgument, c, r, left, right, std::move(partners));
    if (same_number) return true;
    region.arguments.push_back(
        {sum ? "number added" : "factor", fmt::format("{:.9g}", left.number), fmt::format("{:.9g}", right.number)});
    for (const int value : numbers_c)
      if (const int maker = yours_.value(same_elements_before(yours_, value)).step; maker >= 0)
        region.yours.push_back(maker);
    return true;
  }
  if (left.values.empty() || right.values.empty()) {
    const bool missing = left.values.empty();
    blame_odd_term(c, r, left, right, partners, sum, missing ? right.values[0] : left.values[0], missing);
    return true;
  }
  return by_leftover_terms(c, r, left, right, partners, sum);
}

void SumsAndProducts::pair_terms(Terms& left, Terms& right, std::vector<Partner>& partners, bool sum) {
  for (auto mine = left.values.begin(); mine != left.values.end();) {
    const auto theirs = std::find_if(right.values.begin(), right.values.end(), [&](const Term& term) {
      if (term.inverse == mine->inverse) return partners_.agree(mine->value, term.value);
      return sum && are_opposites(mine->value, term.value);
    });
    if (theirs == right.values.end()) {
      ++mine;
      continue;
    }
    partners.push_back({"", mine->value, theirs->value, partners_.agreement(mine->value, theirs->value)});
    mine = left.values.erase(mine);
    right.values.erase(theirs);
  }
}

// What is subtracted here and added there may be the same term.
bool SumsAndProducts::are_opposites(int c, int r) {
  if (partners_.is_neutral(yours_, c)) return false;
  Totals negated = reference_.totals(r);
  negated.sum = -negated.sum;
  if (!may_agree(yours_.totals(c), negated, partners_.tolerance())) return false;
  const auto mine = yours_.numbers(c), theirs = reference_.numbers(r);
  if (!mine || !theirs) return false;
  std::vector<float> opposite = theirs->values;
  for (float& value : opposite) value = -value;
  return relative_distance(mine->values.data(), opposite.data(), mine->count()) <= partners_.tolerance();
}

bool SumsAndProducts::open_a_bias(Side& side, Terms& of, const Terms& other) {
  const auto agrees = [&](int bias, int value) {
    return &side == &yours_ ? partners_.agree(bias, value) : partners_.agree(value, bias);
  };
  for (size_t i = 0; i < of.values.size(); ++i) {
    const Term term = of.values[i];
    const int maker = side.value(term.value).step;
    if (maker < 0 || (side.step(maker).kind != "linear" && side.step(maker).kind != "addmm")) continue;
    const int bias = side.step(maker).operand("bias");
    const bool wanted = bias >= 0 && std::any_of(other.values.begin(), other.values.end(), [&](const Term& one) {
                          return one.inverse == term.inverse && agrees(bias, one.value);
                        });
    if (!wanted || !expand(side, term.value, std::max(partners_.tolerance(), 1e-4))) continue;
    const Step last = side.step(side.value(term.value).expanded);
    of.values[i].value = last.operand("input");
    of.values.push_back({last.operand("other"), term.inverse});
    of.steps.push_back(maker);
    return true;
  }
  return false;
}

bool SumsAndProducts::blame_signs(int c, int r, Terms& left, Terms& right, const std::vector<Partner>& partners,
                                  bool sum) {
  bool found = false;
  for (auto mine = left.values.begin(); mine != left.values.end();) {
    const auto theirs = std::find_if(right.values.begin(), right.values.end(), [&](const Term& term) {
      return term.inverse != mine->inverse && partners_.agree(mine->value, term.value);
    });
    if (theirs == right.values.end()) {
      ++mine;
      continue;
    }
    blame_chain(Kind::kOperation, c, r, left, right, partners).note =
        sum ? "one side adds what the other subtracts" : "one side multiplies by what the other divides by";
    mine = left.values.erase(mine);
    right.values.erase(theirs);
    found = true;
  }
  return found;
}

bool SumsAndProducts::by_leftover_terms(int c, int r, const Terms& left, const Terms& right,
                                        const std::vector<Partner>& partners, bool sum) {
  struct Likeness {
    int score;
    size_t mine, theirs;
  };
  const bool as_many = left.values.size() == right.values.size();
  std::vector<Likeness> all;
  for (size_t i = 0; i < left.values.size(); ++i)
    for (size_t j = 0; j < right.values.size(); ++j) {
      const int mine = left.values[i].value, theirs = right.values[j].value;
      int score = yours_.value(mine).shape == reference_.value(theirs).shape ? 2 : 0;
      const int a = yours_.value(mine).step, b = reference_.value(theirs).step;
      const bool same_kind = (a < 0) == (b < 0) && (a < 0 || are_alike(yours_.step(a).kind, reference_.step(b).kind));
      if (same_kind) score += 2;
      if (share_an_operand(a, b)) score += 3;
      // Of another kind, one of them may be several of the other side's terms in one step.
      if (as_many || (same_kind && score >= 4)) all.push_back({score, i, j});
    }
  std::stable_sort(all.begin(), all.end(), [](const Likeness& a, const Likeness& b) { return a.score > b.score; });
  std::set<size_t> taken_c, taken_r;
  std::vector<std::pair<int, int>> pairs;
  for (const Likeness& one : all) {
    if (taken_c.contains(one.mine) || taken_r.contains(one.theirs)) continue;
    taken_c.insert(one.mine);
    taken_r.insert(one.theirs);
    pairs.emplace_back(left.values[one.mine].value, right.values[one.theirs].value);
  }
  if (!as_many && pairs.size() != std::min(left.values.size(), right.values.size())) return false;
  if (!as_many) {
    const bool missing = left.values.size() < right.values.size();
    const Terms& more = missing ? right : left;
    const std::set<size_t>& taken = missing ? taken_r : taken_c;
    for (size_t i = 0; i < more.values.size(); ++i)
      if (!taken.contains(i)) blame_odd_term(c, r, left, right, partners, sum, more.values[i], missing);
  }
  for (const auto& [mine, theirs] : pairs) locate(mine, theirs, left.steps.front(), right.steps.front());
  return true;
}

void SumsAndProducts::blame_odd_term(int c, int r, const Terms& left, const Terms& right,
                                     const std::vector<Partner>& partners, bool sum, const Term& odd, bool missing) {
  Region& region = blame_chain(missing ? Kind::kMissingStep : Kind::kExtraStep, c, r, left, right, partners);
  region.note = fmt::format("{} {} {}", missing ? "the reference also" : "yours also",
                            sum ? (odd.inverse ? "subtracts" : "adds") : (odd.inverse ? "divides by" : "multiplies by"),
                            described(missing ? reference_ : yours_, odd.value));
}

bool SumsAndProducts::share_an_operand(int maker_c, int maker_r) {
  if (maker_c < 0 || maker_r < 0) return false;
  const Step mine = yours_.step(maker_c), theirs = reference_.step(maker_r);
  for (const Operand& a : mine.operands)
    for (const Operand& b : theirs.operands)
      if (!partners_.is_neutral(yours_, a.value) && partners_.agree(a.value, b.value)) return true;
  return false;
}

}  // namespace lockstep::zoom
