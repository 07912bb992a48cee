// The libraries that hold what needs another library's headers (CUDA's, MLX's): opened at run time, so that a program
// with them starts as quickly as one without, and runs where those are not.
#pragma once
#include <string>

namespace lockstep {

// Path of the library of this name ("lockstep_mlx"): what `variable` of the environment says, else beside the program
// or in ../lib/lockstep. Empty: there is none.
std::string find_leaf(const std::string& name, const char* variable);

// The function `entry` of the library, or null and why not.
void* open_leaf(const std::string& path, const char* entry, std::string& why);

// The table of functions that the library gives, or null and why not.
template <typename Leaf>
const Leaf* open_leaf(const std::string& path, const char* entry, int version, std::string& why) {
  void* const found = open_leaf(path, entry, why);
  if (!found && !why.empty()) return nullptr;
  const Leaf* const leaf = found ? reinterpret_cast<const Leaf* (*)()>(found)() : nullptr;
  if (leaf && leaf->version == version) return leaf;
  why = path + " was built for another version of this program";
  return nullptr;
}

}  // namespace lockstep
