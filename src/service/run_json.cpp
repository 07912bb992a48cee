#include "service/run_json.h"

namespace lockstep {

Json run_entry(const RunSummary& run) {
  return {{"id", run.id},
          {"name", run.name},
          {"status", run.status},
          {"created", run.created},
          {"archived", run.archived},
          {"bytes", folder_bytes(run.path)},
          {"path", run.path.string()}};
}

Json runs_json(const Store& store) {
  Json all = Json::array();
  for (const RunSummary& run : store.list()) all.push_back(run_entry(run));
  return {{"home", store.home().string()}, {"runs", all}};
}

Json run_summary(const Run& run) {
  int64_t kept = 0, inputs = 0, nan = 0;
  for (const Record& record : run.records()) {
    kept += run.has_values(record);
    inputs += record.role == Role::kInput;
    nan += record.stats && record.stats->nan + record.stats->inf > 0;
  }
  return {{"records", run.records().size()},
          {"full_tensors", kept},
          {"inputs", inputs},
          {"not_finite", nan},
          {"bytes", folder_bytes(run.path())},
          {"skipped_lines", run.skipped_lines()}};
}

Json run_json(const Run& run) {
  return {{"run", run.manifest()}, {"path", run.path().string()}, {"summary", run_summary(run)}};
}

Json record_json(const Record& record) {
  Json json = parse_json(line_from_record(record), "the record");
  json.erase("preview");
  return json;
}

}  // namespace lockstep
