#include "diagnose/case/run_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "capture/run_reader.h"

namespace lockstep {

bool has_no_inputs(const RunView& run) {
  return std::none_of(run.records.begin(), run.records.end(),
                      [](const RecordedTensor& record) { return record.role == Role::kInput; });
}

namespace {

// weights.jsonl, by module: header["modules"][module]["weights"][name] holds shape and statistics.
void add_weights(const fs::path& folder, Json& header) {
  constexpr size_t kMostWeights = 100000;
  std::ifstream file(folder / "weights.jsonl", std::ios::binary);
  std::string line;
  for (size_t i = 0; i < kMostWeights && std::getline(file, line); ++i) {
    const auto record = line.size() <= kMaxRecordBytes ? record_from_line(line) : std::nullopt;
    if (!record || !record->stats) continue;
    const std::string& name = record->key.name;
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) continue;
    const Statistics& stats = *record->stats;
    header["modules"][name.substr(0, dot)]["weights"][name.substr(dot + 1)] = {
        {"shape", record->shape}, {"rms", stats.rms}, {"mean", stats.mean},
        {"min", stats.min},       {"max", stats.max}, {"checksum", record->checksum}};
  }
}

}  // namespace

RunView view_of(std::shared_ptr<const Run> run) {
  RunView view;
  view.id = run->id();
  view.header = run->manifest();
  view.header["dropped_records"] = run->skipped_lines();  // whatever run.json itself says
  add_weights(run->path(), view.header);
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
