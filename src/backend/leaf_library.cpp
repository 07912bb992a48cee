#include "backend/leaf_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "base/platform/executable.h"

namespace lockstep {

namespace fs = std::filesystem;

std::string find_leaf(const std::string& name, const char* variable) {
  if (const char* named = std::getenv(variable)) return named;
  std::error_code error;
  const std::string file = "lib" + name + library_suffix();
  const fs::path bin = own_program().parent_path();
  for (const fs::path& candidate : {bin / file, bin / "../lib/lockstep" / file})
    if (fs::exists(candidate, error)) return fs::weakly_canonical(candidate, error).string();
  return {};
}

void* open_leaf(const std::string& path, const char* entry, std::string& why) {
  void* const opened = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened) return ::dlsym(opened, entry);
  const char* const reason = ::dlerror();
  why = reason ? reason : path + " cannot be opened";
  return nullptr;
}

}  // namespace lockstep
