#include "compare/weight_sketch.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/interrupt.h"

namespace lockstep {
namespace {

constexpr int64_t kMostWeightElements = 1 << 24;  // of one weight; larger ones are told by their count alone
constexpr size_t kMostSketched = 20000;           // weights of a checkpoint
constexpr double kSameWeight = 2e-4;              // of the root mean square
constexpr double kRoundedWeight = 0.02;           // quantised ones are rounded; then chance has a say too
constexpr double kRoundedWorth = 0.3;

double number_of(const Json& object, const char* name) {
  return object.contains(name) && object[name].is_number() ? object[name].get<double>() : 0;
}

WeightSketch sketch_of_values(const Values& values) {
  WeightSketch out{values.size(), 0, 0, 0, 0};
  if (values.empty()) return out;
  double sum = 0, squares = 0;
  out.low = out.high = values.v[0];
  for (const float value : values.v) {
    sum += value, squares += static_cast<double>(value) * value;
    out.low = std::min<double>(out.low, value), out.high = std::max<double>(out.high, value);
  }
  const double n = static_cast<double>(values.size());
  out.mean = sum / n, out.rms = std::sqrt(squares / n);
  return out;
}

double weight_likeness(const WeightSketch& a, const WeightSketch& b) {
  if (a.count != b.count) return 0;
  const double scale = std::max(a.rms, b.rms);
  if (!(scale > 0)) return kRoundedWorth;
  const double apart = std::max({std::fabs(a.rms - b.rms), std::fabs(a.mean - b.mean), 0.1 * std::fabs(a.low - b.low),
                                 0.1 * std::fabs(a.high - b.high)}) /
                       scale;
  return apart < kSameWeight ? 1 : apart < kRoundedWeight ? kRoundedWorth : 0;
}

}  // namespace

ModuleWeights recorded_weights(const RunView& run) {
  ModuleWeights out;
  if (!run.header.is_object() || !run.header.contains("modules") || !run.header["modules"].is_object()) return out;
  for (const auto& [name, module] : run.header["modules"].items()) {
    if (!module.is_object() || !module.contains("weights") || !module["weights"].is_object()) continue;
    for (const auto& [parameter, weight] : module["weights"].items()) {
      if (!weight.is_object() || !weight.contains("shape") || !weight["shape"].is_array()) continue;
      WeightSketch sketch{1, number_of(weight, "rms"), number_of(weight, "mean"), number_of(weight, "min"),
                          number_of(weight, "max")};
      for (const Json& size : weight["shape"]) sketch.count *= size.is_number_integer() ? size.get<int64_t>() : 0;
      if (sketch.count > 0) out[name].push_back(sketch);
    }
  }
  return out;
}

ModuleWeights checkpoint_weights(const RunView& run, const WeightSource& weights) {
  std::set<std::string> modules;
  for (const RecordedTensor& record : run.records) modules.insert(record.key.name);
  ModuleWeights out;
  size_t sketched = 0;
  for (const auto& [name, shape] : weights.shapes()) {
    const std::string module = name.substr(0, std::min(name.size(), name.rfind('.')));
    if (!modules.contains(module) || ++sketched > kMostSketched) continue;
    if (checked_numel(shape) > kMostWeightElements) continue;
    check_interrupt("pairing");
    if (const auto values = weights.find(name)) out[module].push_back(sketch_of_values(*values));
  }
  return out;
}

double same_weights(const std::vector<WeightSketch>& a, const std::vector<WeightSketch>& b) {
  if (a.empty() || b.empty()) return -1;
  double common = 0;
  std::vector<bool> used(b.size());
  for (const WeightSketch& one : a) {
    size_t best = b.size();
    double most = 0;
    for (size_t j = 0; j < b.size(); ++j)
      if (const double alike = used[j] ? 0 : weight_likeness(one, b[j]); alike > most) best = j, most = alike;
    if (best < b.size()) used[best] = true, common += most;
  }
  return common / static_cast<double>(std::max(a.size(), b.size()));
}

}  // namespace lockstep
