#include "compare/rank_ways.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/interrupt.h"
#include "compare/alignment.h"
#include "measure/pair_error.h"

namespace lockstep {
namespace {

constexpr double kBelieved = 0.1;       // an error beyond: the values do not tell how the shards belong together
constexpr double kMuchBetterWay = 0.5;  // of the error of the way that is believed first
constexpr double kSameTensor = 1e-3;    // of one that has another name on the other side
constexpr int kMostCallsTried = 3;      // of one name that are looked at
constexpr int kMostStrangers = 48;      // tensors of other names that are looked at, for one name

// How far apart two sides are, each put together in one way; infinite where they cannot be compared.
double error_between(const Assembly& one, const std::vector<Tensor>& of_one, const Assembly& two,
                     const std::vector<Tensor>& of_two, const std::string& name) {
  const auto worst_over_replicas = [](const Assembly& way, const std::vector<Tensor>& pieces) {
    return is_replicated(way) ? pieces.size() : size_t{1};
  };
  double worst = 0;
  for (size_t i = 0; i < worst_over_replicas(one, of_one); ++i)
    for (size_t j = 0; j < worst_over_replicas(two, of_two); ++j) {
      const Tensor a = assembled(one, of_one, i), b = assembled(two, of_two, j);
      if (a.shape() == b.shape()) {
        worst = std::max(worst, pair_error(b, a).relative);
        continue;
      }
      const Alignment aligned = align(name, b, a, kBelieved);
      if (!aligned.comparable) return INFINITY;
      worst = std::max(worst, pair_error(aligned.candidate, a).relative);
    }
  return std::isnan(worst) ? INFINITY : worst;
}

struct Found {
  Assembly reference, candidate;
  double error = INFINITY;
};

std::vector<Assembly> ways_in(const RankedSide& side, size_t i, bool nested) {
  std::vector<Assembly> out = side.ways(i, false);
  if (!nested || !side.is_split(i)) return out;
  const std::vector<Assembly> more = side.ways(i, true);
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

// The ways that bring both sides to one shape and, of those, to the same values.
Found best_ways(const RankedSide& reference, size_t i, const RankedSide& candidate, size_t j, bool only_equal_shapes) {
  Found best;
  const std::vector<Tensor> theirs = reference.load(i), own = candidate.load(j);
  const std::vector<Shape> their_shapes = reference.shapes(i), own_shapes = candidate.shapes(j);
  struct Round {
    bool nested, equal_shapes;
  };
  for (const Round round : {Round{false, true}, Round{true, true}, Round{false, false}}) {
    if (best.error <= kBelieved) break;
    if (round.nested && std::max(theirs.size(), own.size()) < 4) continue;
    if (!round.equal_shapes && only_equal_shapes) break;
    for (const Assembly& one : ways_in(reference, i, round.nested))
      for (const Assembly& two : ways_in(candidate, j, round.nested)) {
        if (round.nested && one.size() + two.size() < 3) continue;  // looked at before
        const auto a = assembled_shape(one, their_shapes), b = assembled_shape(two, own_shapes);
        if (!a || !b || checked_numel(*a) != checked_numel(*b) || (*a == *b) != round.equal_shapes) continue;
        check_interrupt("ranks");
        const double error = error_between(one, theirs, two, own, candidate.all[j].key.name);
        if (error < kMuchBetterWay * best.error) best = {one, two, error};
      }
  }
  return best;
}

// Where values do not tell: shapes, in the order in which the ways are believed.
std::optional<Found> ways_by_shape(const RankedSide& reference, size_t i, const RankedSide& candidate, size_t j) {
  for (const bool equal : {true, false})
    for (const Assembly& one : reference.ways(i, false))
      for (const Assembly& two : candidate.ways(j, false)) {
        const auto a = assembled_shape(one, reference.shapes(i)), b = assembled_shape(two, candidate.shapes(j));
        if (!a || !b || (equal ? *a != *b : checked_numel(*a) != checked_numel(*b))) continue;
        return Found{one, two, INFINITY};
      }
  return std::nullopt;
}

class WaysSearch {
 public:
  WaysSearch(RankedSide& reference, RankedSide& candidate) : reference_(reference), candidate_(candidate) {}

  void choose() {
    for (const auto& [name, calls] : candidate_.by_name) choose_by_values(name, calls);
    choose_for_strangers(candidate_, reference_, true);
    choose_for_strangers(reference_, candidate_, false);
    choose_the_rest();
  }

 private:
  void settle(RankedSide& side, size_t i, const Assembly& way, bool by_values) {
    if (side.is_split(i)) side.chosen.try_emplace(side.name_key(i), Choice{way, by_values});
  }

  // Names that both sides have.
  void choose_by_values(const NameKey&, const std::vector<size_t>& calls) {
    int looked = 0;
    for (const size_t j : calls) {
      const size_t i = candidate_.partner_of(reference_, j);
      if (i == SIZE_MAX || (!candidate_.is_split(j) && !reference_.is_split(i))) continue;
      if (!reference_.can_load(i) || !candidate_.can_load(j) || looked++ >= kMostCallsTried) continue;
      const Found found = best_ways(reference_, i, candidate_, j, false);
      if (found.error > kBelieved) continue;
      settle(reference_, i, found.reference, true);
      settle(candidate_, j, found.candidate, true);
      return;
    }
  }

  // Names that the other side does not have: the tensor there that has these values.
  void choose_for_strangers(RankedSide& side, RankedSide& other, bool is_candidate) {
    std::set<NameKey> seen;
    for (size_t i = 0; i < side.all.size(); ++i) {
      const NameKey key = side.name_key(i);
      if (!side.is_split(i) || side.chosen.contains(key) || !seen.insert(key).second || !side.can_load(i)) continue;
      if (other.by_name.contains({side.names[i], key.second})) continue;
      if (side.is_identical(i)) {
        settle(side, i, {JoinStep{Join::kReplicate, 0, 1, side.all[i].records.size()}}, true);
        continue;
      }
      int looked = 0;
      for (size_t j = 0; j < other.all.size() && looked < kMostStrangers; ++j) {
        if (side.by_name.contains({other.names[j], (other.all[j].role == Role::kInput)}) || !other.can_load(j))
          continue;
        if (!may_be(side, i, other, j)) continue;
        ++looked;
        const Found found = is_candidate ? best_ways(other, j, side, i, true) : best_ways(side, i, other, j, true);
        if (found.error > kSameTensor) continue;
        settle(side, i, is_candidate ? found.candidate : found.reference, true);
        break;
      }
    }
  }

  static bool may_be(const RankedSide& side, size_t i, const RankedSide& other, size_t j) {
    if ((side.all[i].role == Role::kInput) != (other.all[j].role == Role::kInput)) return false;
    for (const Assembly& one : side.ways(i, false))
      for (const Assembly& two : other.ways(j, false))
        if (assembled_shape(one, side.shapes(i)) == assembled_shape(two, other.shapes(j))) return true;
    return false;
  }

  // By what was found for the same layer of another number, else by shapes.
  void choose_the_rest() {
    for (RankedSide* side : {&reference_, &candidate_}) {
      std::map<NameKey, Assembly> like;
      for (const auto& [name, choice] : side->chosen)
        if (choice.by_values) like.try_emplace({with_numbers_open(name.first), name.second}, choice.way);
      for (size_t i = 0; i < side->all.size(); ++i) {
        const NameKey key = side->name_key(i);
        if (!side->is_split(i) || side->chosen.contains(key)) continue;
        const auto found = like.find({with_numbers_open(key.first), key.second});
        if (found != like.end() && assembled_shape(found->second, side->shapes(i)))
          settle(*side, i, found->second, false);
      }
    }
    for (size_t j = 0; j < candidate_.all.size(); ++j) {
      const size_t i = candidate_.partner_of(reference_, j);
      if (i == SIZE_MAX) continue;
      if (const auto found = ways_by_shape(reference_, i, candidate_, j))
        settle(reference_, i, found->reference, false), settle(candidate_, j, found->candidate, false);
    }
  }

  RankedSide &reference_, &candidate_;
};

}  // namespace

void choose_ways(RankedSide& reference, RankedSide& candidate) {
  WaysSearch(reference, candidate).choose();
}

}  // namespace lockstep
