// What a file says about one of its tensors before anything is read.
#pragma once
#include <memory>
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
};

}  // namespace lockstep
