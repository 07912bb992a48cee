// Lockstep's C++ interface: a thin owner over lockstep.h. C++17, no dependencies, no exceptions.
//
//   auto run = lockstep::capture::Run::from_environment("my_port");   // off unless recording was asked for
//   run.checkpoint("block.0.attn", data, {2, 3});                     // records; overwrites data when substituting
#pragma once
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/lockstep.h"

namespace lockstep::capture {

template <typename T>
constexpr lockstep_dtype dtype_of();
template <>
constexpr lockstep_dtype dtype_of<double>() {
  return LOCKSTEP_F64;
}
template <>
constexpr lockstep_dtype dtype_of<float>() {
  return LOCKSTEP_F32;
}
template <>
constexpr lockstep_dtype dtype_of<int8_t>() {
  return LOCKSTEP_I8;
}
template <>
constexpr lockstep_dtype dtype_of<int16_t>() {
  return LOCKSTEP_I16;
}
template <>
constexpr lockstep_dtype dtype_of<int32_t>() {
  return LOCKSTEP_I32;
}
template <>
constexpr lockstep_dtype dtype_of<int64_t>() {
  return LOCKSTEP_I64;
}
template <>
constexpr lockstep_dtype dtype_of<uint8_t>() {
  return LOCKSTEP_U8;
}
template <>
constexpr lockstep_dtype dtype_of<uint16_t>() {
  return LOCKSTEP_U16;
}
template <>
constexpr lockstep_dtype dtype_of<uint32_t>() {
  return LOCKSTEP_U32;
}
template <>
constexpr lockstep_dtype dtype_of<uint64_t>() {
  return LOCKSTEP_U64;
}
template <>
constexpr lockstep_dtype dtype_of<bool>() {
  return LOCKSTEP_BOOL;
}

using Shape = std::vector<int64_t>;
using Tags = std::vector<std::pair<std::string, std::string>>;

// What a checkpoint may be told besides its name.
struct At {
  int step = -1;
  Tags tags = {};
  lockstep_role role = LOCKSTEP_CHECKPOINT;
  Shape strides = {};  // in elements; empty: contiguous
  const char* file = nullptr;
  int line = 0;
  const char* function = nullptr;
};

class Run {
 public:
  Run() = default;  // records nothing
  static Run from_environment(const std::string& name) {
    Run run;
    lockstep_open_from_environment(name.c_str(), &run.handle_);
    return run;
  }
  // Fields as in lockstep_options; struct_bytes is filled in. Not open: see error().
  static Run open(lockstep_options options) {
    Run run;
    options.struct_bytes = sizeof options;
    lockstep_open(&options, &run.handle_);
    return run;
  }
  Run(Run&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Run& operator=(Run&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Run() { close("failed"); }  // left without close(): the program did not get to its end

  explicit operator bool() const { return handle_ != nullptr; }
  std::string id() const { return lockstep_run_id(handle_); }
  std::string path() const { return lockstep_run_path(handle_); }
  static std::string error() { return lockstep_last_error(); }
  void describe(const std::string& details_json) { lockstep_describe(handle_, details_json.c_str()); }
  void close(const char* status = "finished") { lockstep_close(std::exchange(handle_, nullptr), status); }

  // Records `data`, and overwrites it with the reference's values when they are to be substituted; true then.
  template <typename T>
  bool checkpoint(const std::string& name, T* data, const Shape& shape, const At& at = {}) {
    if (!handle_) return false;
    lockstep_tensor* replacement = nullptr;
    const lockstep_view view = view_of(data, dtype_of<T>(), shape, at);
    if (call(name, view, at, &replacement) != LOCKSTEP_REPLACED) return false;
    const T* values = static_cast<const T*>(lockstep_tensor_view(replacement).data);
    scatter(values, data, view, 0);
    lockstep_tensor_free(replacement);
    return true;
  }

  // Data that must not change: records only.
  template <typename T>
  bool checkpoint(const std::string& name, const T* data, const Shape& shape, const At& at = {}) {
    record(name, data, dtype_of<T>(), shape, at);
    return false;
  }

  // The same for any dtype.
  lockstep_status record(const std::string& name, const void* data, lockstep_dtype dtype, const Shape& shape,
                         const At& at = {}) {
    if (!handle_) return LOCKSTEP_OK;
    return call(name, view_of(data, dtype, shape, at), at, nullptr);
  }

 private:
  static lockstep_view view_of(const void* data, lockstep_dtype dtype, const Shape& shape, const At& at) {
    return {data, dtype, static_cast<int32_t>(shape.size()), shape.data(),
            at.strides.size() == shape.size() && !shape.empty() ? at.strides.data() : nullptr};
  }

  lockstep_status call(const std::string& name, const lockstep_view& view, const At& at, lockstep_tensor** out) {
    std::vector<lockstep_tag> tags;
    for (const auto& [tag, value] : at.tags) tags.push_back({tag.c_str(), value.c_str()});
    const lockstep_place place{name.c_str(), at.step, at.role, tags.data(), tags.size(), at.file, at.line, at.function};
    return lockstep_checkpoint(handle_, &place, &view, out);
  }

  // Packed values back into a strided destination; returns where the next values begin.
  template <typename T>
  static const T* scatter(const T* values, T* to, const lockstep_view& view, int32_t axis) {
    if (axis == view.rank) {
      *to = *values;
      return values + 1;
    }
    int64_t stride = 1;
    if (view.strides)
      stride = view.strides[axis];
    else
      for (int32_t inner = axis + 1; inner < view.rank; ++inner) stride *= view.shape[inner];
    for (int64_t i = 0; i < view.shape[axis]; ++i) values = scatter(values, to + i * stride, view, axis + 1);
    return values;
  }

  lockstep_run* handle_ = nullptr;
};

}  // namespace lockstep::capture
