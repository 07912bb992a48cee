// What the system says of one process; base/process.h is what others ask.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>

#include "base/process.h"

namespace lockstep {

// All but the command; none where the process has ended, waited for or not.
std::optional<ProcessFacts> process_status(pid_t pid);
// Its words with blanks between, at most kMostCommandBytes; empty where the system does not say.
std::string process_command(pid_t pid);

}  // namespace lockstep
