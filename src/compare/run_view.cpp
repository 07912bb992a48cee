#include "compare/run_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "capture/run_reader.h"

namespace lockstep {

bool has_no_inputs(const RunView& run) {
  return std::none_of(run.records.begin(), run.records.end(),
                      [](const RecordedTensor& record) { return record.role == Role::kInput; });
}

RunView view_of(std::shared_ptr<const Run> run) {
  RunView view;
  view.id = run->id();
  view.header = run->manifest();
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
