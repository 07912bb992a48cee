#include "cli/tensor_selection.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/names.h"
#include "tensor/index_expression.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse_unknown(const TensorSource& source, const std::string& pattern) {
  std::vector<std::string> known;
  for (const TensorInfo& info : source.tensors()) known.push_back(info.name);
  std::vector<std::string> near = nearest_names(pattern, known);
  if (near.empty())
    for (const std::string& name : known)  // a part of a name is a good start, too
      if (near.size() < 3 && name.find(pattern) != std::string::npos) near.push_back(name);
  fail(Code::kNotFound, "tensors", fmt::format("{} has no tensor '{}'", source.path().string(), pattern),
       {.hint = near.empty() ? "lockstep tensors list " + source.path().string()
                             : fmt::format("{}", fmt::join(near, " or "))});
}

}  // namespace

void TensorSelection::add_to(CLI::App& command, Slices slices) {
  command.add_option("PATH", path, "a .npy, .npz, .safetensors or torch file, a checkpoint, or a folder of such files")
      ->required();
  command.add_option("NAME", name, "a tensor's name, or a glob such as '*.attn.*'");
  if (slices == Slices::kAllowed) command.add_option("SLICE", slice, "NumPy-like: '[0, :, -1, ::2]'");
}

void TensorSelection::settle() {
  if (slice.empty() && !name.empty() && name.front() == '[' && name.back() == ']') std::swap(slice, name);
}

bool is_glob(const std::string& pattern) {
  return pattern.find_first_of("*?[") != std::string::npos;
}

std::vector<const TensorInfo*> select_tensors(const TensorSource& source, const std::string& pattern) {
  std::vector<const TensorInfo*> selected;
  if (!pattern.empty()) {
    if (const TensorInfo* info = source.find(pattern)) return {info};
  }
  for (const TensorInfo& info : source.tensors())
    if (pattern.empty() || glob_match(pattern, info.name)) selected.push_back(&info);
  if (selected.empty() && !pattern.empty()) refuse_unknown(source, pattern);
  return selected;
}

const TensorInfo& select_one(const TensorSource& source, const std::string& name) {
  const std::vector<const TensorInfo*> selected = select_tensors(source, name);
  if (selected.size() == 1) return *selected[0];
  std::vector<std::string> some;
  for (size_t i = 0; i < selected.size() && i < 3; ++i) some.push_back(selected[i]->name);
  fail(Code::kUsage, "tensors",
       selected.empty() ? source.path().string() + " holds no tensor"
                        : fmt::format("{} tensors here; one must be named", selected.size()),
       {.hint = fmt::format("{}", fmt::join(some, " or "))});
}

Tensor load_selected(const TensorSource& source, const TensorInfo& info, const std::string& slice) {
  const Tensor tensor = source.tensor(info.name);
  return slice.empty() ? tensor : apply_slice(tensor, slice);
}

}  // namespace lockstep
