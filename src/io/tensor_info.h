// What a file says about one of its tensors before anything is read.
#pragma once
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "base/file.h"
#include "tensor/tensor.h"

namespace lockstep {

// The path of a file, shared by all tensors in it: ten thousand paths of their own would cost more than the listing.
class SharedPath {
 public:
  SharedPath() = default;
  SharedPath(fs::path path) : path_(std::make_shared<const fs::path>(std::move(path))) {}
  const fs::path& get() const { return path_ ? *path_ : kNone; }
  operator const fs::path&() const { return get(); }
  std::string string() const { return get().string(); }
  fs::path filename() const { return get().filename(); }
  fs::path extension() const { return get().extension(); }

 private:
  static inline const fs::path kNone;
  std::shared_ptr<const fs::path> path_;
};

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape = {};
  SharedPath file = {};
  uint64_t offset_bytes = 0, size_bytes = 0;
  bool complex = false;  // the last axis is real and imaginary part, which the file holds as one number
};

// Of tensors that are written: those whose last axis, [..., 2], becomes complex numbers again.
using ComplexNames = std::set<std::string, std::less<>>;

}  // namespace lockstep
