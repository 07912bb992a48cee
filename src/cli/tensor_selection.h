// Which tensors a command is about: a path, a name or glob, a slice.
#pragma once
#include <string>

#include "service/tensor_pick.h"

namespace CLI {
class App;
}

namespace lockstep {

struct TensorSelection {
  std::string path, name, slice;

  enum class Slices { kAllowed, kNone };
  // PATH [NAME] [SLICE]; a NAME that starts with '[' is the slice
  void add_to(CLI::App& command, Slices slices = Slices::kAllowed);
  void settle();  // call before use: moves a slice given in the place of the name
};

}  // namespace lockstep
