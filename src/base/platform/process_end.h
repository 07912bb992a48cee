// The end of a process that need not be our child, as a descriptor.
#pragma once
#include <sys/types.h>

namespace lockstep {

// Readable once the process has ended, waited for or not; the caller closes it. -1: there is none under this number.
int process_end_descriptor(pid_t pid);

}  // namespace lockstep
