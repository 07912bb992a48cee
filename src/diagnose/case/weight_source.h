// The weights behind a run, by tensor name: component, then checkpoint prefix, then "weight", "bias", "gamma".
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "measure/values.h"

namespace lockstep {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual std::optional<Values> find(const std::string& name) const = 0;
  virtual const std::map<std::string, Shape>& shapes() const = 0;
};

// Weights in memory, for tests and for weights that were recorded.
class MemoryWeights : public WeightSource {
 public:
  void add(const std::string& name, Values values);
  std::optional<Values> find(const std::string& name) const override;
  const std::map<std::string, Shape>& shapes() const override { return shapes_; }

 private:
  std::map<std::string, Values> values_;
  std::map<std::string, Shape> shapes_;
};

// A checkpoint file, a folder of one, or a model folder whose subfolders (transformer, text_encoder, vae) are the
// components.
std::shared_ptr<const WeightSource> open_weights(const fs::path& path);

}  // namespace lockstep
