#include "backend/mlx/library.h"
#include "base/platform/executable.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "base/platform/executable.h"

namespace lockstep::mlx {
namespace {

namespace fs = std::filesystem;

std::string leaf_beside_program() {
  if (const char* named = std::getenv("LOCKSTEP_MLX_LEAF")) return named;
  std::error_code error;
  const fs::path bin = own_program().parent_path();
  for (const char* name : {"liblockstep_mlx.so", "liblockstep_mlx.dylib"})
    for (const fs::path& folder : {bin, bin / "../lib/lockstep"})
      if (fs::exists(folder / name, error)) return fs::weakly_canonical(folder / name, error).string();
  return {};
}

Library open_leaf() {
  Library found;
  found.path = leaf_beside_program();
  if (found.path.empty()) {
    found.why = "this build has no MLX part (cmake -DLOCKSTEP_MLX=ON makes it where the wheel mlx is installed)";
    return found;
  }
  void* const opened = dlopen(found.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!opened) {
    const char* const reason = dlerror();
    found.why = reason ? reason : found.path + " cannot be opened";
    return found;
  }
  using Entry = const Leaf* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(opened, kLeafEntry));
  const Leaf* const leaf = entry ? entry() : nullptr;
  if (!leaf || leaf->version != kLeafVersion) {
    found.why = found.path + " was built for another version of this program";
    return found;
  }
  if (leaf->open(&found.facts) != Outcome::kDone) {
    found.why = std::string("MLX does not start: ") + leaf->message();
    return found;
  }
  found.leaf = leaf;
  return found;
}

}  // namespace

const Library& library() {
  static const Library found = open_leaf();
  return found;
}

}  // namespace lockstep::mlx
