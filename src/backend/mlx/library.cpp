#include "backend/mlx/library.h"

#include "backend/leaf_library.h"

namespace lockstep::mlx {
namespace {

Library look() {
  Library found;
  found.path = find_leaf("lockstep_mlx", "LOCKSTEP_MLX_LEAF");
  if (found.path.empty()) {
    found.why = "this build has no MLX part (cmake -DLOCKSTEP_MLX=ON makes it where the wheel mlx is installed)";
    return found;
  }
  const Leaf* const leaf = open_leaf<Leaf>(found.path, kLeafEntry, kLeafVersion, found.why);
  if (!leaf) return found;
  if (leaf->open(&found.facts) != Outcome::kDone) {
    found.why = std::string("MLX does not start: ") + leaf->message();
    return found;
  }
  found.leaf = leaf;
  return found;
}

}  // namespace

const Library& library() {
  static const Library found = look();
  return found;
}

}  // namespace lockstep::mlx
