#include "capture/installation.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/platform/executable.h"

namespace lockstep {
namespace {

fs::path own_folder() {
  const fs::path program = own_program();
  return program.empty() ? fs::current_path() : program.parent_path();
}

std::vector<fs::path> folders_in(const fs::path& parent, const std::string& prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error))
    if (at->path().filename().string().starts_with(prefix)) found.push_back(at->path());
  std::sort(found.begin(), found.end());
  return found;
}

// Where pip puts a wheel's Python package, seen from the wheel's program: beside it in an environment or under a prefix
// (lib64 on Fedora, dist-packages for Debian's own Python), one folder up with `pip install --target`. Several Pythons
// may share a prefix: only a package of this version will do.
std::vector<fs::path> package_folders_of_wheels(const fs::path& bin) {
  const char* metadata = "lockstep-" LOCKSTEP_VERSION ".dist-info";
  std::vector<fs::path> candidates{bin / ".."}, found;
  for (const char* lib : {"../lib", "../lib64"})
    for (const fs::path& python : folders_in(bin / lib, "python3"))
      for (const char* packages : {"site-packages", "dist-packages"}) candidates.push_back(python / packages);
  for (const fs::path& candidate : candidates) {
    std::error_code error;
    if (fs::exists(candidate / metadata, error)) found.push_back(candidate);
  }
  return found;
}

}  // namespace

fs::path capture_library() {
  const std::string name = std::string("liblockstep_capture") + library_suffix();
  for (const fs::path& candidate : {own_folder() / "../lib" / name, own_folder() / name}) {
    std::error_code error;
    if (fs::exists(candidate, error)) return fs::weakly_canonical(candidate);
  }
  return {};
}

fs::path python_package_folder() {
  std::vector<fs::path> candidates;
  if (const char* told = std::getenv("LOCKSTEP_PYTHON_PACKAGE"); told && *told) candidates.emplace_back(told);
  for (const char* relative : {"../../python", "../share/lockstep/python", "../python"})
    candidates.push_back(own_folder() / relative);
  for (const fs::path& folder : package_folders_of_wheels(own_folder())) candidates.push_back(folder);
  std::string tried;
  for (const fs::path& candidate : candidates) {
    std::error_code error;
    if (fs::exists(candidate / "lockstep" / "inject" / "sitecustomize.py", error))
      return fs::weakly_canonical(candidate);
    tried += (tried.empty() ? "" : ", ") + candidate.lexically_normal().string();
  }
  fail(Code::kNotFound, "record", "the Python package lockstep was not found in " + tried,
       {.hint = "LOCKSTEP_PYTHON_PACKAGE"});
}

}  // namespace lockstep
