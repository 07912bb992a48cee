#include "diagnose/linear/linear_calls.h"

#include <functional>
#include <string_view>

namespace lockstep {

bool KnownRows::is_new(std::span<const float> row) {
  const std::string_view bytes(reinterpret_cast<const char*>(row.data()), row.size_bytes());
  return known_.insert(std::hash<std::string_view>{}(bytes)).second;
}

CallRows recorded_rows(Case& failing, int64_t inputs, int64_t outputs, int64_t enough) {
  const RunView& run = failing.candidate_run();
  CallRows out;
  KnownRows known;
  size_t latest_input = SIZE_MAX;
  for (size_t i = 0; i < run.records.size() && static_cast<int64_t>(out.x.size()) < enough; ++i) {
    const RecordedTensor& record = run.records[i];
    if (record.key.name != failing.module || !record.load) continue;
    if (record.role == Role::kInput) {
      latest_input = i;
    } else if (latest_input != SIZE_MAX) {
      const Values &x = failing.load_candidate(latest_input), &y = failing.load_candidate(i);
      latest_input = SIZE_MAX;
      if (x.last() != inputs || y.last() != outputs || x.rows() != y.rows()) continue;
      for (int64_t row = 0; row < x.rows(); ++row)
        if (known.is_new(x.row(row))) out.x.push_back(x.row(row)), out.y.push_back(y.row(row));
    }
  }
  return out;
}

}  // namespace lockstep
