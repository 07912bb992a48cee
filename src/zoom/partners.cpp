#include "zoom/partners.h"

#include <algorithm>

namespace lockstep::zoom {
namespace {

constexpr int64_t kFewElements = 4;

void strongest_first(std::vector<Match>& matches) {
  std::stable_sort(matches.begin(), matches.end(), [](const Match& a, const Match& b) {
    if (a.agreement.arrangement != b.agreement.arrangement) return a.agreement.arrangement > b.agreement.arrangement;
    return a.agreement.distance < b.agreement.distance;
  });
}

}  // namespace

const Agreement& Partners::agreement(int yours, int reference) {
  const auto [at, is_new] = pairs_.try_emplace({yours, reference});
  if (!is_new) return at->second;
  if (!may_agree(yours_.totals(yours), reference_.totals(reference), tolerance_)) return at->second;
  const auto a = yours_.numbers(yours), b = reference_.numbers(reference);
  if (a && b) at->second = agreement_of(*a, *b, tolerance_);
  return at->second;
}

// Values that were made since a list was drawn up are not in it.
void Partners::forget_if_grown() {
  if (counted_yours_ == yours_.value_count() && counted_reference_ == reference_.value_count()) return;
  counted_yours_ = yours_.value_count();
  counted_reference_ = reference_.value_count();
  of_yours_.clear();
  of_reference_.clear();
}

const std::vector<Match>& Partners::of_yours(int yours) {
  forget_if_grown();
  const auto [at, is_new] = of_yours_.try_emplace(yours);
  if (is_new) {
    for (int r = 0; r < reference_.value_count(); ++r)
      if (const Agreement& found = agreement(yours, r)) at->second.push_back({r, found});
    strongest_first(at->second);
  }
  return at->second;
}

const std::vector<Match>& Partners::of_reference(int reference) {
  forget_if_grown();
  const auto [at, is_new] = of_reference_.try_emplace(reference);
  if (is_new) {
    for (int c = 0; c < yours_.value_count(); ++c)
      if (const Agreement& found = agreement(c, reference)) at->second.push_back({c, found});
    strongest_first(at->second);
  }
  return at->second;
}

bool Partners::is_neutral(const Side& side, int value) const {
  const Totals& totals = side.totals(value);
  return totals.count < kFewElements || totals.uniform || totals.squares == 0 || totals.binary;
}

}  // namespace lockstep::zoom
