#include "diagnose/case/weight_source.h"

#include <algorithm>

#include "base/error.h"
#include "base/folder.h"
#include "io/checkpoint.h"
#include "io/tensor_source.h"

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

namespace {

class CheckpointWeights : public WeightSource {
 public:
  void add(const std::string& component, Checkpoint checkpoint) {
    const size_t number = checkpoints_.size();
    for (const TensorInfo& info : checkpoint.tensors()) {
      const std::string name = component.empty() ? info.name : component + "." + plain_name(info.name);
      shapes_[name] = info.shape;
      index_[name] = {number, info.name};
    }
    checkpoints_.push_back(std::move(checkpoint));
  }
  std::optional<Values> find(const std::string& name) const override {
    const auto found = index_.find(name);
    if (found == index_.end()) return std::nullopt;
    return values_from(checkpoints_[found->second.first].tensor(found->second.second));
  }
  const std::map<std::string, Shape>& shapes() const override { return shapes_; }

 private:
  // Newer transformers keep the language model one level deeper; records use the published names.
  static std::string plain_name(const std::string& name) {
    for (const auto& [from, to] : {std::pair{"model.language_model.", "model."}, std::pair{"model.visual.", "visual."}})
      if (name.starts_with(from)) return to + name.substr(std::string_view(from).size());
    return name;
  }
  std::vector<Checkpoint> checkpoints_;
  std::map<std::string, std::pair<size_t, std::string>> index_;
  std::map<std::string, Shape> shapes_;
};

// Files of other kinds: torch, .npz, or a folder of such.
class FileWeights : public WeightSource {
 public:
  explicit FileWeights(const fs::path& path) : source_(open_tensors(path)) {
    for (const TensorInfo& info : source_->tensors()) shapes_[info.name] = info.shape;
  }
  std::optional<Values> find(const std::string& name) const override {
    if (!shapes_.contains(name)) return std::nullopt;
    return values_from(source_->tensor(name));
  }
  const std::map<std::string, Shape>& shapes() const override { return shapes_; }

 private:
  std::unique_ptr<TensorSource> source_;
  std::map<std::string, Shape> shapes_;
};

bool is_other_file(const fs::path& path) {
  return !fs::is_directory(path) && path.extension() != ".safetensors" && has_tensor_extension(path);
}

bool holds_checkpoint(const fs::path& folder) {
  for (const fs::directory_entry& entry : folder_entries(folder, "weights")) {
    const std::string file = entry.path().filename().string();
    if (entry.path().extension() == ".safetensors" || file.ends_with(".safetensors.index.json")) return true;
  }
  return false;
}

}  // namespace

std::shared_ptr<const WeightSource> open_weights(const fs::path& path) {
  if (is_other_file(path)) return std::make_shared<FileWeights>(path);
  auto out = std::make_shared<CheckpointWeights>();
  if (!fs::is_directory(path) || holds_checkpoint(path)) {
    out->add("", Checkpoint::open(path));
    return out;
  }
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : folder_entries(path, "weights"))
    if (entry.is_directory() && holds_checkpoint(entry.path())) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) out->add(folder.filename().string(), Checkpoint::open(folder));
  if (!folders.empty()) return out;
  for (const fs::directory_entry& entry : folder_entries(path, "weights"))
    if (is_other_file(entry.path())) return std::make_shared<FileWeights>(path);
  fail(Code::kNotFound, "weights", "no checkpoint in " + path.string(),
       {.expected = ".safetensors files, here or one folder below, or torch or NumPy files"});
}

}  // namespace lockstep
