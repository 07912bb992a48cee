#include "zoom/fed_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/json.h"
#include "zoom/agreement.h"

namespace lockstep::zoom {
namespace {

constexpr double kSameThing = 0.1;         // an input this near is the same one, with noise
constexpr double kLargestResidual = 1e-2;  // of an input that is the other one times a number

bool is_floating_value(const Value& value) {
  return value.tensor.defined() && is_floating(value.tensor.dtype());
}

// Ids and counts: they are right or wrong, never near.
bool is_counted(const Value& value) {
  return value.tensor.defined() && !is_floating(value.tensor.dtype()) && value.tensor.dtype() != DType::kBool;
}

double distance_of(const Numbers& a, const Numbers& b) {
  return a.count() == b.count() ? relative_distance(a.values.data(), b.values.data(), a.count()) : 1;
}

// The number that makes b of a, where there is one other than 1: another unit, not an error from before.
std::optional<double> factor_between(const Numbers& a, const Numbers& b) {
  double product = 0, squares = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    product += static_cast<double>(a.values[i]) * b.values[i];
    squares += static_cast<double>(b.values[i]) * b.values[i];
  }
  if (squares == 0 || product == 0) return std::nullopt;
  const double factor = product / squares;
  Numbers scaled = b;
  for (float& value : scaled.values) value = static_cast<float>(value * factor);
  if (std::fabs(factor - 1) < kSameThing || distance_of(a, scaled) > kLargestResidual) return std::nullopt;
  return factor;
}

Shape sizes_of(const Numbers& numbers) {
  Shape out;
  for (const int64_t size : numbers.shape)
    if (size != 1) out.push_back(size);
  return out;
}

class Feeding {
 public:
  Feeding(const Side& reference, const Side& yours) : reference_(reference), yours_(yours) {}

  std::vector<FedInput> run() {
    for (const auto& [path, value] : yours_.tape().inputs)
      if (is_floating_value(yours_.value(value))) by_content(path, value);
    for (const auto& [path, value] : yours_.tape().inputs)
      if (is_floating_value(yours_.value(value)) && !paired_.contains(value)) by_name(path, value);
    for (const auto& [path, value] : yours_.tape().inputs)
      if (is_counted(yours_.value(value))) by_count(path, value);
    return std::move(found_);
  }

 private:
  void by_content(const std::string& path, int mine) {
    const auto a = yours_.numbers(mine);
    if (!a) return;
    Agreement best;
    int best_value = -1;
    for (const auto& [other, theirs] : reference_.tape().inputs) {
      if (!is_floating_value(reference_.value(theirs)) || taken_.contains(theirs)) continue;
      if (!may_agree(yours_.totals(mine), reference_.totals(theirs), kSameThing)) continue;
      const auto b = reference_.numbers(theirs);
      const Agreement agreement = agreement_of(*a, *b, kSameThing);
      const bool better = agreement && (best_value < 0 || agreement.distance < best.distance ||
                                        (agreement.distance == best.distance && other == path));
      if (better) best = agreement, best_value = theirs;
    }
    if (best_value < 0) return;
    const auto arranged = arranged_like(*reference_.numbers(best_value), *a, best);
    if (!arranged) return;
    add(path, mine, best_value, *arranged, words_from(best), "");
  }

  // An error from before the call has changed it beyond recognition: of one name and one shape, it is the same input.
  void by_name(const std::string& path, int mine) {
    const auto a = yours_.numbers(mine);
    for (const auto& [other, theirs] : reference_.tape().inputs) {
      if (other != path || taken_.contains(theirs) || !is_floating_value(reference_.value(theirs))) continue;
      const auto b = reference_.numbers(theirs);
      if (!a || !b || sizes_of(*a) != sizes_of(*b)) continue;
      Numbers values = *b;
      values.shape = a->shape;
      std::string why_not;
      if (const auto factor = factor_between(*a, *b))
        why_not = fmt::format("it is the reference's times {:.4g}, which may be meant", *factor);
      return add(path, mine, theirs, std::move(values), "by its name", std::move(why_not));
    }
    found_.push_back({path, "", 1, "", "no input of the reference's call answers it", {}});
  }

  void by_count(const std::string& path, int mine) {
    for (const auto& [other, theirs] : reference_.tape().inputs) {
      if (other != path || !is_counted(reference_.value(theirs))) continue;
      const auto a = yours_.numbers(mine), b = reference_.numbers(theirs);
      if (!a || !b || sizes_of(*a) != sizes_of(*b) || a->values == b->values) continue;
      found_.push_back({path, other, 1, "by its name", "", {a->shape, b->values}});
    }
  }

  void add(const std::string& path, int mine, int theirs, Numbers values, std::string how, std::string why_not) {
    paired_.insert(mine);
    taken_.insert(theirs);
    const double distance = distance_of(*yours_.numbers(mine), values);
    // Up to its own rounding it holds the reference's numbers already.
    if (distance <= unit_roundoff(yours_.value(mine).tensor.dtype())) return;
    std::string reference_path;
    for (const auto& [path_there, value] : reference_.tape().inputs)
      if (value == theirs) reference_path = path_there;
    if (!why_not.empty()) values = {};
    found_.push_back({path, reference_path, distance, std::move(how), std::move(why_not), std::move(values)});
  }

  const Side& reference_;
  const Side& yours_;
  std::set<int> paired_, taken_;
  std::vector<FedInput> found_;
};

}  // namespace

std::vector<FedInput> inputs_to_feed(const Side& reference, const Side& yours) {
  return Feeding(reference, yours).run();
}

void write_fed_inputs(const std::vector<FedInput>& inputs, const fs::path& folder) {
  AtomicFile data(folder / "inputs.bin");
  Json lines = Json::array();
  int64_t offset = 0;
  for (const FedInput& input : inputs) {
    if (!input.why_not.empty()) continue;
    const auto bytes = std::as_bytes(std::span<const float>(input.values.values));
    data.write(bytes);
    lines.push_back(
        {{"path", input.yours}, {"shape", input.values.shape}, {"offset", offset}, {"bytes", bytes.size()}});
    offset += static_cast<int64_t>(bytes.size());
  }
  data.commit();
  write_atomically(folder / "inputs.json", Json{{"inputs", lines}}.dump() + "\n");
}

}  // namespace lockstep::zoom
