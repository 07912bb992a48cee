#include <sys/syscall.h>
#include <unistd.h>

#include "base/platform/process_end.h"

namespace lockstep {

int process_end_descriptor(pid_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}

}  // namespace lockstep
