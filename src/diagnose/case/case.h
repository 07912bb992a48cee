// What a diagnosis is given: the bad pair, the good tensors near it, the weights behind both runs; and the one rule by
// which an explanation of it is accepted.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/case/finding.h"
#include "diagnose/case/run_view.h"
#include "diagnose/case/structure.h"
#include "diagnose/case/thresholds.h"
#include "diagnose/case/weight_source.h"
#include "measure/values.h"

namespace lockstep {

enum class Relation { kOwnInput, kChild, kSibling, kParentInput, kEarlier };

// A good tensor near the bad one. Values are read when first used and kept for the other families.
struct Item {
  size_t reference = 0, candidate = 0;  // records
  std::string name;
  Role role = Role::kOutput;
  Relation relation = Relation::kEarlier;
  Shape shape;
  bool assumed = false;       // the candidate did not record it: the reference's values stand for its own
  std::string label() const;  // "input of X" or "X"
};

class Case {
 public:
  Case(const RunView& reference, const RunView& candidate, const Structure& structure, size_t reference_record,
       size_t candidate_record);

  std::string name;    // of the bad record
  std::string module;  // it belongs to; empty for a stage of the pipeline
  Role role = Role::kOutput;
  int step = -1;
  bool is_leaf = false;
  Values r, c;              // the bad pair, same shape
  double error = 0;         // relative
  double tolerance = kFit;  // a fit that leaves no more than this explains its side
  double floor = 0;         // noise the candidate's tensor bears anyway, inherited and its own
  bool isolated = false;
  std::vector<Item> items;  // nearest first
  std::shared_ptr<const WeightSource> weights_r, weights_c;
  std::function<std::string(const std::vector<int32_t>&)> text_of_tokens;  // empty: no tokenizer is known

  const Values& reference_of(const Item& item);
  const Values& candidate_of(const Item& item);
  const RunView& reference_run() const { return reference_; }
  const RunView& candidate_run() const { return candidate_; }
  const Structure& structure() const { return structure_; }
  size_t reference_record() const { return reference_record_; }
  size_t candidate_record() const { return candidate_record_; }
  // Values of any records, sharing the cache.
  const Values& load_reference(size_t record);
  const Values& load_candidate(size_t record);
  // The candidate's record that answers a record of the reference; SIZE_MAX when there is none.
  std::function<size_t(size_t)> partner;
  // The candidate's values of records that it did not keep, by the reference's record: worked back from others.
  std::map<size_t, Values> worked_back;

  std::optional<Values> weight_r(const std::string& weight_name) const;
  // The candidate's own weights where given, else the reference's: the same checkpoint is the usual case.
  std::optional<Values> weight_c(const std::string& weight_name) const;
  std::string where() const;
  // Another pair in this one's place: a part of it, or an operand worked back from it. What was loaded is shared.
  Case with_pair(Values reference, Values candidate) const;

  // A family found the formula that makes the reference's tensor; applied to the candidate's own inputs it leaves this.
  // Where several formulas fit, the kindest counts. True: that was the question, the search may end.
  bool note_local(double with_reference_formula) {
    local_error = std::min(local_error.value_or(INFINITY), with_reference_formula);
    return only_local;
  }
  bool only_local = false;
  std::optional<double> local_error;  // what this stage itself has added; nothing when no formula is known

  bool explains(double residual) const { return residual <= tolerance; }
  // The candidate may be left with a little more: its other errors are its own. Noise is no error, as long as what is
  // explained stands far above it.
  bool explains_candidate(double residual) const {
    const double most =
        std::min(error, 1.0);  // of the tensor itself: of a hundredfold error a fiftieth explains nothing
    return residual <= std::max({2 * tolerance, kRestOfError * most, std::min(floor, kNoiseInError * most)});
  }
  // `other` parameters fit the candidate clearly better than the reference's own do.
  bool is_better(double residual, double with_reference_parameters) const {
    return residual < kClearlyBetter * with_reference_parameters;
  }

 private:
  const RunView& reference_;
  const RunView& candidate_;
  const Structure& structure_;
  size_t reference_record_, candidate_record_;
  using Loaded = std::map<size_t, Values>;
  std::shared_ptr<Loaded> loaded_r_ = std::make_shared<Loaded>(), loaded_c_ = std::make_shared<Loaded>();
};

}  // namespace lockstep
