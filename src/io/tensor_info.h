// What a file says about one of its tensors before anything is read.
#pragma once
#include <string>

#include "base/file.h"
#include "tensor/tensor.h"

namespace lockstep {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  fs::path file;
  uint64_t offset_bytes = 0, size_bytes = 0;
};

}  // namespace lockstep
