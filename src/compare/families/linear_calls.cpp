#include "compare/families/linear_calls.h"

namespace lockstep {

std::vector<LinearCall> recorded_calls(Case& failing, int64_t inputs, int64_t outputs, int64_t enough_rows) {
  const RunView& run = failing.candidate_run();
  std::vector<LinearCall> out;
  int64_t rows = 0;
  size_t latest_input = SIZE_MAX;
  for (size_t i = 0; i < run.records.size() && rows < enough_rows; ++i) {
    const RecordedTensor& record = run.records[i];
    if (record.key.name != failing.module || !record.load) continue;
    if (record.role == Role::kInput) {
      latest_input = i;
    } else if (latest_input != SIZE_MAX) {
      const Values &x = failing.load_candidate(latest_input), &y = failing.load_candidate(i);
      latest_input = SIZE_MAX;
      if (x.last() != inputs || y.last() != outputs || x.rows() != y.rows()) continue;
      out.push_back({&x, &y});
      rows += x.rows();
    }
  }
  return out;
}

}  // namespace lockstep
