// Programs that Lockstep has started and that still run, and other Python programs that hold a framework.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/process.h"

namespace lockstep {

struct StartedProgram {
  std::string kind, id;  // "debug session" or "recorded run", and which
  ProcessFacts process;
  std::vector<ProcessFacts> children;  // theirs too; and what has left the program's side within its session
};

// The process that a session.json ("process_start_ticks") or process.json ("start_ticks") names, if it still runs.
std::optional<ProcessFacts> process_in(const fs::path& record, const char* ticks_field);

// By the records of this home folder: number and start time together, so that a number which was given again to another
// process never counts.
std::vector<StartedProgram> started_programs(const fs::path& home);

struct FrameworkProcess {
  ProcessFacts process;
  std::vector<std::string> frameworks;  // of those asked for, the ones it has loaded
};

std::vector<std::string> known_frameworks();  // "torch", "mlx", "jax"
// Other processes of this user that have one of these loaded. Error{kUsage} where a name is unknown.
std::vector<FrameworkProcess> processes_with(const std::vector<std::string>& frameworks);

struct EndedProcesses {
  std::vector<pid_t> asked, killed, left;  // ended when asked to; had to be killed; not to be ended
};

// SIGTERM to all, and SIGKILL to those that are still there after `grace_secs`.
EndedProcesses end_processes(const std::vector<ProcessFacts>& processes, double grace_secs);
std::vector<ProcessFacts> all_processes(const StartedProgram& program);  // the program first, then its children

Json json_from(const StartedProgram& program);
Json json_from(const FrameworkProcess& process);
Json json_from(const EndedProcesses& ended);

}  // namespace lockstep
