// Runs a program with the recorder inside it and keeps what it printed and how it ended.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "capture/installation.h"
#include "capture/store.h"

namespace lockstep {

struct RecordRequest {
  fs::path home;
  std::string name;                                                  // empty: after the program
  std::vector<std::string> argv;                                     // a .py file is run with `python`
  std::string python;                                                // empty: LOCKSTEP_PYTHON, else python3
  std::string modules, functions, tap, no_tap, steps, full, budget;  // as on the command line; empty: not given
  bool inputs = false, stats_only = false;
  bool record_modules = true;  // false: only what the program records itself
  std::string coverage;        // "functions" or "lines": what ran is written to the run's coverage folder
  std::string reference, substitute;
  std::string operations, operations_at;  // globs of modules whose operations are traced; "step:hit:pass" of one call
  bool operations_end = false;            // the program ends when that call has returned
  std::string operations_feed;            // a folder with inputs that the traced call is given in the place of its own
  fs::path cwd;                           // empty: ours
  std::map<std::string, std::string> environment;  // empty: ours
  bool output_to_stderr = false;                   // what the program prints on stdout goes to stderr, for --json
  bool quiet = false;                              // what it prints goes to output.log only
  bool or_unrecorded = false;       // where no run can be made: one warning, and the program runs all the same
  Json details = Json::object();    // merged into run.json
  std::function<bool()> cancelled;  // asked now and then; true ends the program
};

struct RecordOutcome {
  std::string not_recorded;  // why there is no run; empty: there is one
  fs::path run;
  std::string id, status;  // finished, failed or killed
  int exit_code = 0;       // 128 + signal when it was killed
  int64_t records = 0;
  int world = 0;                   // ranks of a program of several processes; 0: one process
  std::optional<int> failed_rank;  // that failed, or was killed, first
};

RecordOutcome record_program(const RecordRequest& request);

}  // namespace lockstep
