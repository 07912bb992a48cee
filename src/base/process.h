// Processes as the system lists them. A number is given again to a later process, so that everything here goes by the
// number and the time at which the process began.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct ProcessFacts {
  pid_t pid = -1, parent = -1, session = -1;
  uint64_t start_ticks = 0;  // since the machine started
  std::string command;       // its words with blanks between, at most 4 KB
};

// A file of the process's folder in /proc, or its beginning; none where it has ended or is not ours to look at.
std::optional<std::string> process_file(pid_t pid, const char* name, size_t most_bytes);
std::optional<ProcessFacts> process_facts(pid_t pid);  // none: it has ended
uint64_t process_start_ticks(pid_t pid);               // 0: there is none that runs under this number
std::vector<ProcessFacts> own_processes();             // of this user; this process is not among them

// False: it had ended, its number belongs to another process by now, or it may not be touched.
bool send_signal(const ProcessFacts& process, int number);
bool is_alive(const ProcessFacts& process);

}  // namespace lockstep
