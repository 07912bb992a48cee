// Tensors kept by name outside any run: what save() writes in one program, load() brings into another.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tensor/tensor.h"

namespace lockstep {

void save_tensor(const fs::path& home, std::string_view name, const Tensor& tensor);
struct SavedTensor {
  std::string name;
  fs::path file;  // .npy; what is known of it lies beside it in .json
  uint64_t bytes = 0;
};
std::vector<SavedTensor> saved_tensors(const fs::path& home);  // by name
void remove_saved(const SavedTensor& tensor);

Tensor load_tensor(const fs::path& home, std::string_view name);  // Error{kNotFound} names the nearest

}  // namespace lockstep
