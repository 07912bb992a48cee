// The debugged program as a process: started in a session of its own, so that ending it ends its children too and a
// Ctrl-C at our terminal does not reach it. Its output goes straight to a file: it loses no line when we die.
#pragma once
#include <sys/types.h>

#include <mutex>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/file.h"
#include "base/platform/machine_facts.h"
#include "base/process.h"

namespace lockstep {

struct ChildRequest {
  std::vector<std::string> argv;  // argv[0] is looked up in the PATH of `environment`
  Environment environment;
  fs::path cwd;
  fs::path output;                               // appended to; stdout and stderr share it, so that their order is kept
  fs::path input;                                // empty: /dev/null, so that a program which reads stdin sees its end
  std::vector<std::pair<int, int>> descriptors;  // our descriptor → its number in the child
};

// How a process ended, as the system tells it.
struct ChildEnd {
  int status = 0;           // waitpid's
  uint64_t peak_bytes = 0;  // 0: unknown
  bool seen = true;         // false: it was not our child, so that the system has told somebody else

  bool by_signal() const;
  int exit_code() const;            // 128 + signal where there was one
  int signal() const;               // 0: none
  std::string signal_name() const;  // "SIGSEGV"; empty: none
};

class ChildProcess {
 public:
  explicit ChildProcess(const ChildRequest& request);
  // One that an earlier service has started: its end can be seen, its exit status cannot. `start_ticks` tells it from a
  // later process of the same number.
  ChildProcess(pid_t pid, uint64_t start_ticks);
  ~ChildProcess();  // kills what is still there
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  int end_descriptor() const { return end_fd_; }  // readable once the process has ended
  // From any thread: a process is not waited for between the look at whether it was and the signal to its number.
  bool try_wait(ChildEnd& end);  // true once it has ended
  void signal(int number, bool with_children) const;

 private:
  mutable std::mutex waiting_;
  pid_t pid_ = -1;
  int end_fd_ = -1;
  bool waited_ = false, adopted_ = false;
  uint64_t inherited_peak_bytes_ = 0;
  ChildEnd end_;
};

// The file that `name` means on this PATH. Error{kNotFound}.
fs::path find_program(const std::string& name, const Environment& environment, const fs::path& cwd);

}  // namespace lockstep
