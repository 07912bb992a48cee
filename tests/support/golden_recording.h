// A recording of the official pipeline (tests/goldens) and a tap that compares a run of ours against it, tensor by
// tensor.
#pragma once
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "io/safetensors.h"
#include "tensor/convert.h"
#include "tensor/tap.h"

namespace lockstep::testing {

inline double relative_l2(const Tensor& expected, const Tensor& got) {
  const std::vector<double> a = to_doubles(expected), b = to_doubles(got);
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += a[i] * a[i];
  }
  return std::sqrt(difference) / std::max(std::sqrt(size), 1e-30);
}

class GoldenRecording {
 public:
  explicit GoldenRecording(const fs::path& stem)
      : tensors_(SafetensorsFile::open(fs::path(stem) += ".safetensors")), json_(read_json(fs::path(stem) += ".json")) {
    for (const Json& record : json_["records"]) {
      if (record["dtype"] == "complex64") continue;  // rotary tables: ours are cos and sin
      Tags tags;
      for (const auto& [tag, value] : record["tags"].items()) tags.emplace_back(tag, value.get<std::string>());
      const TensorKey key{record["name"], record["step"].is_null() ? -1 : record["step"].get<int>(), record["hit"],
                          tags};
      records_[key] = {record["tensor"].get<std::string>(), record["shape"].get<Shape>()};
    }
  }

  const Json& settings() const { return json_["settings"]; }
  bool has(const TensorKey& key) const { return records_.count(key) > 0; }
  Tensor tensor(const TensorKey& key) const {
    const auto& [name, shape] = records_.at(key);
    return tensors_->tensor(name).reshape(shape);
  }
  Tensor tensor(const std::string& name) const { return tensors_->tensor(name); }

 private:
  std::shared_ptr<const SafetensorsFile> tensors_;
  Json json_;
  std::map<TensorKey, std::pair<std::string, Shape>> records_;
};

// Offered tensors, by key, packed copies.
class CollectingTap : public Tap {
 public:
  bool wants(std::string_view) const override { return true; }
  std::optional<Tensor> offer(const TensorKey& key, const Tensor& tensor) override {
    TensorKey counted = key;
    counted.hit = hits_[key]++;
    order.push_back(counted);
    tensors[counted] = tensor.clone();
    return std::nullopt;
  }
  std::map<TensorKey, Tensor> tensors;
  std::vector<TensorKey> order;

 private:
  std::map<TensorKey, int> hits_;
};

inline const fs::path kGoldens = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/goldens";
inline constexpr double kF32Bound = 1e-5;  // relative L2 against the official code, at every stage

}  // namespace lockstep::testing
