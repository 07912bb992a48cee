#include "diagnose/case/weight_names.h"

#include <set>

namespace lockstep {
namespace {

class RenamedWeights : public WeightSource {
 public:
  explicit RenamedWeights(std::shared_ptr<const WeightSource> source) : source_(std::move(source)) {}
  void add(const std::string& name, const std::string& original, const Shape& shape) {
    shapes_[name] = shape;
    original_[name] = original;
  }
  std::optional<Values> find(const std::string& name) const override {
    const auto found = original_.find(name);
    return found == original_.end() ? std::nullopt : source_->find(found->second);
  }
  const std::map<std::string, Shape>& shapes() const override { return shapes_; }

 private:
  std::shared_ptr<const WeightSource> source_;
  std::map<std::string, Shape> shapes_;
  std::map<std::string, std::string> original_;
};

std::string root_of(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

// "transformer.blocks.0.to_q" → root "transformer" with "blocks.0.to_q" among its modules.
std::map<std::string, std::set<std::string>> modules_by_root(const RunView& run) {
  std::map<std::string, std::set<std::string>> out;
  for (const RecordedTensor& record : run.records)
    if (const std::string root = root_of(record.key.name); !root.empty())
      out[root].insert(record.key.name.substr(root.size() + 1));
  return out;
}

size_t fitting(const std::set<std::string>& modules, const std::string& prefix, const WeightSource& weights) {
  size_t count = 0;
  for (const std::string& module : modules) count += weights.shapes().contains(prefix + module + ".weight");
  return count;
}

}  // namespace

size_t modules_with_weights(const RunView& run, const WeightSource& weights) {
  std::set<std::string> names;
  for (const RecordedTensor& record : run.records) names.insert(record.key.name);
  return fitting(names, "", weights);
}

std::shared_ptr<const WeightSource> named_as_in(const RunView& run, std::shared_ptr<const WeightSource> weights) {
  if (!weights) return weights;
  std::set<std::string> prefixes{""};
  for (const auto& [name, shape] : weights->shapes())
    if (const std::string root = root_of(name); !root.empty()) prefixes.insert(root + ".");
  std::map<std::string, std::string> renamed;  // prefix of the weights → root of the run
  for (const auto& [root, modules] : modules_by_root(run)) {
    size_t best = fitting(modules, root + ".", *weights);
    std::string chosen;
    bool other = false;
    for (const std::string& prefix : prefixes)
      if (const size_t count = fitting(modules, prefix, *weights); count > best)
        best = count, chosen = prefix, other = true;
    if (other) renamed[chosen] = root + ".";
  }
  if (renamed.empty()) return weights;
  auto out = std::make_shared<RenamedWeights>(weights);
  for (const auto& [name, shape] : weights->shapes()) {
    const auto by_component = renamed.find(root_of(name) + ".");
    if (by_component != renamed.end() && !root_of(name).empty())
      out->add(by_component->second + name.substr(by_component->first.size()), name, shape);
    else if (const auto whole = renamed.find(""); whole != renamed.end())
      out->add(whole->second + name, name, shape);
    else
      out->add(name, name, shape);
  }
  return out;
}

}  // namespace lockstep
