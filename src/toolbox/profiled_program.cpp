#include "toolbox/profiled_program.h"

#include <algorithm>

#include "base/error.h"
#include "debugger/child_process.h"

namespace lockstep {

RecordOutcome profile_program(RecordRequest request, const std::string& evaluate) {
  request.record_modules = false;
  if (request.environment.empty()) request.environment = current_environment();
  request.environment["LOCKSTEP_PROFILE"] = evaluate;
  // A program with an allocator of its own keeps it: then what the process holds is all that is known of its memory.
  const fs::path counter = capture_library().parent_path() / "liblockstep_memory.so";
  std::error_code error;
  if (request.environment["LD_PRELOAD"].empty()) {
    request.environment.erase("LD_PRELOAD");
    if (fs::exists(counter, error)) request.environment["LD_PRELOAD"] = counter.string();
  }
  return record_program(request);
}

}  // namespace lockstep
