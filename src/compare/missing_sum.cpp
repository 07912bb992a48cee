#include "compare/missing_sum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "measure/pair_error.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

constexpr size_t kMostTermsTried = 8;

bool is_right(const PairResult& result) {
  return result.state == PairState::kGood || result.state == PairState::kLayout;
}

bool is_term(const RecordedTensor& record) {
  return record.shards && record.shards->is_sum && record.shards->load.size() == record.shards->ranks.size();
}

std::vector<double> sum_of(const RankShards& shards) {
  std::vector<double> sum;
  for (const auto& load : shards.load) {
    const std::vector<double> term = to_doubles(load());
    if (sum.empty()) sum.resize(term.size());
    if (sum.size() != term.size()) return {};
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
  }
  return sum;
}

double relative(const std::vector<double>& own, const std::vector<double>& wanted) {
  if (own.size() != wanted.size() || own.empty()) return INFINITY;
  double apart = 0, norm = 0;
  for (size_t i = 0; i < own.size(); ++i) apart += std::pow(own[i] - wanted[i], 2), norm += std::pow(wanted[i], 2);
  return norm > 0 ? std::sqrt(apart / norm) : INFINITY;
}

// The bad tensor of each rank with its own term taken out and the whole sum put in: is it the reference's?
double error_with_the_sum(const RankShards& bad, const RankShards& terms, const std::vector<double>& wanted) {
  const std::vector<double> sum = sum_of(terms);
  if (sum.size() != wanted.size() || bad.load.size() != terms.load.size()) return INFINITY;
  double worst = 0;
  for (size_t r = 0; r < bad.load.size(); ++r) {
    std::vector<double> own = to_doubles(bad.load[r]());
    const std::vector<double> term = to_doubles(terms.load[r]());
    if (own.size() != sum.size() || term.size() != sum.size()) return INFINITY;
    for (size_t i = 0; i < own.size(); ++i) own[i] += sum[i] - term[i];
    worst = std::max(worst, relative(own, wanted));
  }
  return worst;
}

// Results of the candidate's terms of sums before a record, nearest first.
std::vector<const PairResult*> terms_before(const RunView& candidate, const Comparison& comparison, size_t record) {
  std::vector<const PairResult*> out;
  for (const PairResult& result : comparison.results)
    if (result.pair.candidate < record && is_right(result) && is_term(candidate.records[result.pair.candidate]))
      out.push_back(&result);
  std::sort(out.begin(), out.end(),
            [](const PairResult* a, const PairResult* b) { return a->pair.candidate > b->pair.candidate; });
  return out;
}

// Where the terms come from: the earliest tensor with the very same ones.
const PairResult& made_at(const RunView& candidate, const std::vector<const PairResult*>& terms,
                          const PairResult& found) {
  const auto values = [&](const PairResult& result) {
    return to_doubles(candidate.records[result.pair.candidate].shards->load[0]());
  };
  const PairResult* earliest = &found;
  const std::vector<double> wanted = values(found);
  for (const PairResult* one : terms)
    if (one->pair.candidate < earliest->pair.candidate && candidate.records[one->pair.candidate].role != Role::kInput &&
        values(*one) == wanted)
      earliest = one;
  return *earliest;
}

bool is_given_to(const RecordedTensor& input, const RecordedTensor& made) {
  const std::string& name = made.key.name;
  return input.role == Role::kInput && input.key.hit == made.key.hit && input.key.step == made.key.step &&
         (input.key.name == name || input.key.name.starts_with(name + "."));
}

Finding finding_for(const RunView& reference, const RunView& candidate, const PairResult& made, const PairResult& bad,
                    double residual) {
  const RecordedTensor& own = candidate.records[made.pair.candidate];
  const std::string &name = reference.records[made.pair.reference].key.name,
                    &used = reference.records[bad.pair.reference].key.name;
  const bool itself = made.pair.candidate == bad.pair.candidate;
  return {.cause = "ranks.missing_sum",
          .explanation = fmt::format("each of the {} ranks goes on with its own term of {}: their sum is the "
                                     "reference's, and {}",
                                     own.shards->ranks.size(), name,
                                     itself ? "no rank has it" : fmt::format("no rank adds them up before {}", used)),
          .fix = fmt::format("sum {} over the ranks (all_reduce) before it is used", name),
          .look_at = own.where.empty() ? name : fmt::format("{}, {}", name, own.where),
          .residual = residual};
}

}  // namespace

std::optional<Finding> find_missing_sum(const RunView& reference, const RunView& candidate,
                                        const Comparison& comparison, double tolerance) {
  const PairResult& bad = comparison.results[comparison.first->result];
  const RecordedTensor &r = reference.records[bad.pair.reference], &c = candidate.records[bad.pair.candidate];
  if (!c.shards || c.shards->load.size() < 2 || !r.load || !is_floating(r.dtype)) return std::nullopt;
  const std::vector<double> wanted = to_doubles(r.load());
  if (c.shards->is_whole)
    if (const double error = relative(sum_of(*c.shards), wanted); error <= tolerance)
      return finding_for(reference, candidate, bad, bad, error);
  const std::vector<const PairResult*> terms = terms_before(candidate, comparison, bad.pair.candidate);
  if (terms.empty()) return std::nullopt;
  const auto named = [&](const PairResult& found, double error) {
    return finding_for(reference, candidate, made_at(candidate, terms, found), bad, error);
  };
  for (size_t i = 0; i < std::min(kMostTermsTried, terms.size()) && c.shards->is_whole; ++i) {
    const RankShards& own = *candidate.records[terms[i]->pair.candidate].shards;
    if (own.ranks != c.shards->ranks) continue;
    if (const double error = error_with_the_sum(*c.shards, own, wanted); error <= tolerance)
      return named(*terms[i], error);
  }
  // What the call was given are the terms themselves; one that adds them up would have come out right.
  for (const PairResult* one : terms)
    if (is_given_to(candidate.records[one->pair.candidate], c)) return named(*one, one->error.relative);
  // A tensor that each rank has whole, each another: nothing has brought them together since.
  if (c.shards->differ && comparison.causes.empty()) return named(*terms[0], terms[0]->error.relative);
  return std::nullopt;
}

std::optional<Finding> find_odd_rank(const RunView& reference, const RunView& candidate, const Comparison& comparison,
                                     double tolerance) {
  const PairResult& bad = comparison.results[comparison.first->result];
  const RecordedTensor &r = reference.records[bad.pair.reference], &c = candidate.records[bad.pair.candidate];
  if (!c.shards || !c.shards->differ || !r.load) return std::nullopt;
  std::vector<int> right, wrong;
  const Tensor wanted = r.load();
  for (size_t i = 0; i < c.shards->load.size(); ++i) {
    const Tensor own = c.shards->load[i]();
    const bool agrees = own.shape() == wanted.shape() && pair_error(own, wanted).relative <= tolerance;
    (agrees ? right : wrong).push_back(c.shards->ranks[i]);
  }
  if (right.empty() || wrong.empty()) return std::nullopt;
  return Finding{.cause = "ranks.one_differs",
                 .explanation = fmt::format("rank {} agrees with the reference, rank {} does not, and both should hold "
                                            "the same tensor",
                                            fmt::join(right, ", "), fmt::join(wrong, ", ")),
                 .look_at = r.key.name,
                 .residual = 0};
}

std::string unproven_sum(const RunView& candidate, const Comparison& comparison) {
  const PairResult* last_term = nullptr;
  size_t last_whole = 0;
  for (const PairResult& result : comparison.results) {
    const RecordedTensor& record = candidate.records[result.pair.candidate];
    if (is_term(record) && is_right(result)) {
      if (!last_term || result.pair.candidate > last_term->pair.candidate) last_term = &result;
    } else if (is_right(result)) {
      last_whole = std::max(last_whole, result.pair.candidate);
    }
  }
  if (!last_term || last_whole > last_term->pair.candidate) return "";
  return fmt::format(
      "{} is right as the sum of the ranks' terms, and nothing was recorded after it: whether your program adds them "
      "up (all_reduce) is not known; name what follows, or record the module that holds it",
      candidate.records[last_term->pair.candidate].key.name);
}

}  // namespace lockstep
