// clean, kill-all and the store's limits, asked by any face: what would go, and what did.
#pragma once
#include "toolbox/clean.h"
#include "toolbox/started_programs.h"

namespace lockstep {

// `arguments` are checked ones (checked_arguments).
CleanRequest clean_request_from(const Json& arguments);
Json clean_json(const fs::path& home, const CleanPlan& plan, const std::vector<StoredItem>* removed);  // null: a plan

// Empty texts leave a limit as it is.
Json limits_json(const fs::path& home, const std::string& warn, const std::string& refuse);

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
