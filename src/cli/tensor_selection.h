// Which tensors a command is about: a path, a name or glob, a slice.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "io/tensor_source.h"

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

// Everything the pattern names, in file order; all without one. Error{kNotFound} with the nearest names.
std::vector<const TensorInfo*> select_tensors(const TensorSource& source, const std::string& pattern);
const TensorInfo& select_one(const TensorSource& source, const std::string& name);
bool is_glob(const std::string& pattern);

Tensor load_selected(const TensorSource& source, const TensorInfo& info, const std::string& slice);

}  // namespace lockstep
