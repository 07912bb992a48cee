// Where MLX is on this machine: the leaf library beside the program, which was built against one wheel of `mlx` and
// finds that one again (C++ of MLX has no stable binary interface), and why it cannot be used when it cannot.
#pragma once
#include <string>

#include "backend/mlx/leaf.h"

namespace lockstep::mlx {

struct Library {
  const Leaf* leaf = nullptr;  // null: `why` says what is missing
  Facts facts{};
  std::string path;  // of the leaf; empty where there is none
  std::string why;
};

// Looked for once. LOCKSTEP_MLX_LEAF names the leaf; else it lies beside the program or in ../lib/lockstep.
const Library& library();

}  // namespace lockstep::mlx
