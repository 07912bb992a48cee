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

inline constexpr size_t kMostCommandBytes = 4096;

struct ProcessFacts {
  pid_t pid = -1, parent = -1, session = -1;
  uint64_t start_ticks = 0;  // grows with the time at which it began, in a unit of the system
  std::string command;       // its words with blanks between, at most kMostCommandBytes
};

std::optional<ProcessFacts> process_facts(pid_t pid);  // none: it has ended
uint64_t process_start_ticks(pid_t pid);               // 0: there is none that runs under this number
std::vector<ProcessFacts> own_processes();             // of this user; this process is not among them

// Paths of the files it has mapped, libraries above all, some of them more than once; none where it is not ours to
// look.
inline constexpr size_t kMostMappedFiles = 1 << 18;
std::vector<std::string> mapped_files(pid_t pid);

// False: it had ended, its number belongs to another process by now, or it may not be touched.
bool send_signal(const ProcessFacts& process, int number);
bool is_alive(const ProcessFacts& process);

}  // namespace lockstep
