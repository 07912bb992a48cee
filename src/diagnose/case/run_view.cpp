#include "diagnose/case/run_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/strict_stream.h"
#include "capture/run_reader.h"
#include "diagnose/case/weight_source.h"
#include "io/npy.h"

namespace lockstep {

bool has_no_inputs(const RunView& run) {
  return std::none_of(run.records.begin(), run.records.end(),
                      [](const RecordedTensor& record) { return record.role == Role::kInput; });
}

namespace {

// Weights in files of a run folder, read when asked for.
class RecordedWeights : public WeightSource {
 public:
  explicit RecordedWeights(fs::path folder) : folder_(std::move(folder)) {}
  void add(const Record& record) {
    shapes_[record.key.name] = record.shape;
    files_[record.key.name] = {record.file, record.dtype};
  }
  std::optional<Values> find(const std::string& name) const override {
    const auto found = files_.find(name);
    if (found == files_.end()) return std::nullopt;
    try {
      const Tensor tensor = read_npy(folder_ / found->second.first, found->second.second);
      if (tensor.shape() == shapes_.at(name)) return values_from(tensor);
    } catch (const Error&) {  // gone or damaged since: the comparison does without
    }
    return std::nullopt;
  }
  const std::map<std::string, Shape>& shapes() const override { return shapes_; }

 private:
  fs::path folder_;
  std::map<std::string, std::pair<std::string, std::optional<DType>>> files_;
  std::map<std::string, Shape> shapes_;
};

// "weights/17.npy" and nothing else: a line from outside must not name another file.
bool is_weight_file(const std::string& file) {
  constexpr std::string_view kBefore = "weights/", kAfter = ".npy";
  if (file.size() <= kBefore.size() + kAfter.size() || !file.starts_with(kBefore) || !file.ends_with(kAfter))
    return false;
  const std::string_view number =
      std::string_view(file).substr(kBefore.size(), file.size() - kBefore.size() - kAfter.size());
  return std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// weights.jsonl, by module: header["modules"][module]["weights"][name] holds shape and statistics. Returns the weights
// themselves where all of them were kept.
std::shared_ptr<const WeightSource> add_weights(const fs::path& folder, Json& header) {
  auto kept = std::make_shared<RecordedWeights>(folder);
  bool all_kept = true;
  constexpr size_t kMostWeights = 100000;
  const fs::path listed = folder / "weights.jsonl";
  std::error_code none;
  if (!fs::is_regular_file(listed, none)) return nullptr;  // a pipe would be waited for
  std::ifstream file = strict_file(listed, std::ios::binary);
  std::string line;
  for (size_t i = 0; i < kMostWeights && std::getline(file, line); ++i) {
    const auto record = line.size() <= kMaxRecordBytes ? record_from_line(line) : std::nullopt;
    if (!record || !record->stats) continue;
    all_kept = all_kept && record->dtype && is_weight_file(record->file);
    if (all_kept) kept->add(*record);
    const std::string& name = record->key.name;
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) continue;
    const Statistics& stats = *record->stats;
    header["modules"][name.substr(0, dot)]["weights"][name.substr(dot + 1)] = {
        {"shape", record->shape}, {"rms", stats.rms}, {"mean", stats.mean},
        {"min", stats.min},       {"max", stats.max}, {"checksum", record->checksum}};
  }
  return all_kept && !kept->shapes().empty() ? kept : nullptr;
}

}  // namespace

RunView view_of(std::shared_ptr<const Run> run) {
  RunView view;
  view.id = run->id();
  view.header = run->manifest();
  view.header["dropped_records"] = run->skipped_lines();  // whatever run.json itself says
  view.weights = add_weights(run->path(), view.header);
  for (size_t i = 0; i < run->records().size(); ++i) {
    const Record& record = run->records()[i];
    RecordedTensor seen;
    seen.key = record.key;
    seen.role = record.role;
    seen.dtype = record.dtype.value_or(DType::kF32);
    seen.shape = record.shape;
    seen.checksum = record.checksum;
    seen.stats = record.stats;
    seen.substituted = record.substituted;
    if (!record.where.file.empty())
      seen.where = fmt::format("{}:{} {}", record.where.file, record.where.line, record.where.function);
    if (run->has_values(record)) seen.load = [run, i] { return run->tensor(run->records()[i]); };
    view.records.push_back(std::move(seen));
  }
  return view;
}

}  // namespace lockstep
