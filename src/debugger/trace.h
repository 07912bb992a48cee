// trace.jsonl: everything that happened in a session, one strict-JSON line each, written as it happens. The part of us
// inside the program writes its stops, evaluations and breakpoints; we add what only we see. A line is one write() to a
// file opened for appending, so that whoever is killed, whatever was said before is there.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"

namespace lockstep {

class TraceWriter {
 public:
  explicit TraceWriter(const fs::path& file);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  void add(const std::string& kind, const Json& fields);  // from any thread

 private:
  int fd_ = -1;
};

struct TracePart {
  std::vector<Json> lines;  // each with its number, "line"
  int64_t total = 0;        // lines in the file
  int64_t skipped = 0;      // torn or malformed
};

// Lines after number `after`, at most `most` of them; a negative `most` takes the last ones. `kind`: only these.
TracePart read_trace(const fs::path& file, int64_t after, int64_t most, const std::string& kind = {});

// Where a session stands by its trace alone, for a service that was not there.
struct TraceState {
  int64_t output_lines = 0;  // of the program's output that the trace holds
  int64_t stops = 0;
  Json exited, last_stop;               // the program's last words, the last place where it stood; null: none
  std::map<int64_t, Json> breakpoints;  // number → what `break` was asked for, of those that were not removed
};
TraceState trace_state(const fs::path& file);

// One document with the fields that the seeds' trace had: session_id, script_path, start_time, end_time, breakpoints,
// steps (step, step_type, location, code_context, call_stack, variables, or expression and result), total_steps.
Json trace_document(const fs::path& file);

}  // namespace lockstep
