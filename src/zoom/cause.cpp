#include "zoom/cause.h"

#include <algorithm>
#include <set>

#include "diagnose/diagnose.h"

namespace lockstep::zoom {
namespace {

constexpr int64_t kMostShownElements = 1 << 20;  // of one value that a family is shown
constexpr size_t kMostInputs = 8;

// Values that go into these steps and are made by none of them.
std::vector<Operand> inputs_of(const Side& side, const std::vector<int>& steps) {
  std::set<int> made;
  for (const int step : steps)
    for (const int output : side.step(step).outputs) made.insert(output);
  std::vector<Operand> out;
  std::set<int> seen;
  for (const int step : steps)
    for (const Operand& operand : side.step(step).operands)
      if (!made.contains(operand.value) && seen.insert(operand.value).second) out.push_back(operand);
  return out;
}

RecordedTensor record_of(const std::string& name, Role role, const Numbers& numbers) {
  RecordedTensor record;
  record.key = {name, -1, 0, {}};
  record.role = role;
  record.shape = numbers.shape;
  const Tensor tensor = Tensor::from<float>(numbers.shape, numbers.values);
  record.load = [tensor] { return tensor; };
  return record;
}

bool is_small(const std::shared_ptr<const Numbers>& numbers) {
  return numbers && numbers->count() > 0 && numbers->count() <= kMostShownElements;
}

// The region as the call of a module: what goes into the reference's steps, your values beside it in the same layout,
// and the two results.
class AsModule {
 public:
  AsModule(const Region& region, const Side& reference, const Side& yours, double tolerance)
      : reference_(reference), yours_(yours), tolerance_(tolerance) {
    module_ = "region";
    const std::vector<Operand> mine = inputs_of(yours, region.yours);
    for (const Operand& operand : inputs_of(reference, region.reference)) {
      if (inputs_ >= kMostInputs) break;
      add_input(operand, mine);
    }
  }

  // Whether the two results can be held against each other; then they are the last records.
  bool add_results(int mine, int theirs) {
    const auto c = yours_.numbers(mine), r = reference_.numbers(theirs);
    if (!is_small(c) || !is_small(r) || c->count() != r->count()) return false;
    Numbers shaped = *c;
    shaped.shape = r->shape;
    left_.records.push_back(record_of(module_, Role::kOutput, *r));
    right_.records.push_back(record_of(module_, Role::kOutput, shaped));
    return true;
  }

  std::vector<Finding> causes(double error) {
    const Structure structure(left_);
    const size_t last = left_.records.size() - 1;
    Case failing(left_, right_, structure, last, last);
    failing.partner = [](size_t record) { return record; };
    failing.weights_r = weights_r_, failing.weights_c = weights_c_;
    for (size_t i = 0; i < last; ++i)
      failing.items.push_back(
          {i, i, left_.records[i].key.name, Role::kInput, Relation::kOwnInput, left_.records[i].shape, assumed_[i]});
    failing.error = error;
    failing.tolerance = std::min(std::max(kFit, tolerance_), error / 4);
    return diagnose(failing);
  }

 private:
  void add_input(const Operand& operand, const std::vector<Operand>& mine) {
    const auto theirs = reference_.numbers(operand.value);
    if (!is_small(theirs)) return;
    std::optional<Numbers> beside;
    bool is_weight = reference_.value(operand.value).origin == Origin::kParameter;
    for (const Operand& other : mine) {
      const auto numbers = yours_.numbers(other.value);
      if (!is_small(numbers) || numbers->count() != theirs->count()) continue;
      const bool answers =
          is_weight && other.parameter == operand.parameter && yours_.value(other.value).origin == Origin::kParameter;
      if (const Agreement agreement = agreement_of(*theirs, *numbers, tolerance_))
        beside = arranged_like(*numbers, *theirs, agreement);
      else if (answers && numbers->shape == theirs->shape)
        beside = *numbers;  // another weight in its place
      if (beside) break;
    }
    if (is_weight && (operand.parameter == "weight" || operand.parameter == "bias")) {
      const std::string name = module_ + "." + operand.parameter;
      weights_r_->add(name, {theirs->shape, theirs->values});
      weights_c_->add(name, {theirs->shape, beside ? beside->values : theirs->values});
      return;
    }
    ++inputs_;
    const std::string name = module_ + "." + (operand.parameter.empty() ? std::to_string(inputs_) : operand.parameter);
    assumed_.push_back(!beside);
    left_.records.push_back(record_of(name, Role::kInput, *theirs));
    right_.records.push_back(record_of(name, Role::kInput, beside ? *beside : *theirs));
  }

  const Side& reference_;
  const Side& yours_;
  double tolerance_;
  std::string module_;
  size_t inputs_ = 0;
  std::vector<bool> assumed_;  // yours has no such value: the reference's stands for it
  RunView left_, right_;
  std::shared_ptr<MemoryWeights> weights_r_ = std::make_shared<MemoryWeights>(),
                                 weights_c_ = std::make_shared<MemoryWeights>();
};

// A factor for each channel says what is different, not what was done; and what happens around a model (its noise, its
// schedule, its pictures) does not happen inside one of its calls.
bool speaks_of_operations(Cause cause) {
  static constexpr std::string_view kAround[] = {"latents", "scheduler", "guidance", "tokens",   "text",
                                                 "picture", "image",     "capture",  "timestep", "stage"};
  return !cause.is_effect() && std::find(std::begin(kAround), std::end(kAround), cause.family()) == std::end(kAround);
}

}  // namespace

std::optional<RegionCause> cause_of(const Region& region, const Side& reference, const Side& yours, double tolerance) {
  if (region.yours_value < 0 || region.reference_value < 0 || region.reference.empty()) return std::nullopt;
  AsModule module(region, reference, yours, tolerance);
  if (!module.add_results(region.yours_value, region.reference_value)) return std::nullopt;
  for (const Finding& finding : module.causes(std::max(region.error, 4 * kFit)))
    if (speaks_of_operations(finding.cause))
      return RegionCause{std::string(finding.cause.id()), finding.explanation, finding.fix, finding.residual};
  return std::nullopt;
}

}  // namespace lockstep::zoom
