// clean and kill-all, asked by any face: what would go, and what did.
#pragma once
#include "toolbox/clean.h"
#include "toolbox/started_programs.h"

namespace lockstep {

// `arguments` are checked ones (checked_arguments).
CleanRequest clean_request_from(const Json& arguments);
Json clean_json(const fs::path& home, const CleanPlan& plan, const std::vector<StoredItem>* removed);  // null: a plan

struct KillRequest {
  std::vector<std::string> frameworks;
  std::vector<pid_t> force;
  double grace_secs = 3;
};
struct KillPlan {
  std::vector<StartedProgram> programs;
  std::vector<FrameworkProcess> others;
  std::vector<ProcessFacts> end;  // the programs with their children, and what was named by --force
};
KillRequest kill_request_from(const Json& arguments);
KillPlan plan_kill(const fs::path& home, const KillRequest& request);
Json kill_json(const KillPlan& plan, const EndedProcesses* ended);  // null: a plan

}  // namespace lockstep
