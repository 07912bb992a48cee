#include "base/process.h"

#include "base/platform/process_status.h"

namespace lockstep {

std::optional<ProcessFacts> process_facts(pid_t pid) {
  std::optional<ProcessFacts> facts = process_status(pid);
  if (facts) facts->command = process_command(pid);
  return facts;
}

uint64_t process_start_ticks(pid_t pid) {
  const std::optional<ProcessFacts> facts = process_status(pid);
  return facts ? facts->start_ticks : 0;
}

bool is_alive(const ProcessFacts& process) {
  return process.start_ticks != 0 && process_start_ticks(process.pid) == process.start_ticks;
}

}  // namespace lockstep
