#include "cli/tensor_selection.h"

#include <CLI/CLI.hpp>

namespace lockstep {
void TensorSelection::add_to(CLI::App& command, Slices slices) {
  command.add_option("PATH", path, "a .npy, .npz, .safetensors or torch file, a checkpoint, or a folder of such files")
      ->required();
  command.add_option("NAME", name, "a tensor's name, or a glob such as '*.attn.*'");
  if (slices == Slices::kAllowed) command.add_option("SLICE", slice, "NumPy-like: '[0, :, -1, ::2]'");
}

void TensorSelection::settle() {
  if (slice.empty() && !name.empty() && name.front() == '[' && name.back() == ']') std::swap(slice, name);
}

}  // namespace lockstep
