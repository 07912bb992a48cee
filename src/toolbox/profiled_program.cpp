#include "toolbox/profiled_program.h"

#include <algorithm>

#include "base/error.h"
#include "base/platform/executable.h"
#include "debugger/child_process.h"

namespace lockstep {

namespace {

// Beside the capture library in a build, inside the Python package where the program is installed; empty: not there.
std::string memory_counter() {
  std::vector<fs::path> folders{python_package_folder() / "lockstep"};
  if (const fs::path library = capture_library(); !library.empty()) folders.push_back(library.parent_path());
  for (const fs::path& folder : folders) {
    std::error_code error;
    const std::string path = (folder / (std::string("liblockstep_memory") + library_suffix())).string();
    // The loader takes blanks and colons for the end of a name.
    if (fs::exists(path, error) && path.find_first_of(" :") == std::string::npos) return path;
  }
  return {};
}

}  // namespace

RecordOutcome profile_program(RecordRequest request, const std::string& evaluate) {
  request.record_modules = false;
  if (request.environment.empty()) request.environment = current_environment();
  request.environment["LOCKSTEP_PROFILE"] = evaluate;
  // A program with an allocator of its own keeps it: then what the process holds is all that is known of its memory.
  if (const std::string counter = memory_counter();
      !counter.empty() && !request.environment.contains(preload_variable()))
    request.environment[preload_variable()] = counter;
  return record_program(request);
}

}  // namespace lockstep
