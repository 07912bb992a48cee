#include "compare/weight_source.h"

namespace lockstep {

void MemoryWeights::add(const std::string& name, Values values) {
  shapes_[name] = values.shape;
  values_[name] = std::move(values);
}

std::optional<Values> MemoryWeights::find(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

}  // namespace lockstep
