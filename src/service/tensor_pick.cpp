#include "service/tensor_pick.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "base/error.h"
#include "base/names.h"
#include "tensor/convert.h"
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

Json value_json(const std::byte* at, DType dtype) {
  return dispatch(dtype, [&]<typename T>(TypeTag<T>) -> Json {
    if constexpr (std::is_integral_v<T>) {  // exact, 64 bits too
      T value;
      std::memcpy(&value, at, sizeof(T));
      return value;
    } else {
      return json_number(element_as_double(at, dtype));
    }
  });
}

// Nested as the shape is.
Json values_json(const Tensor& packed, size_t axis, int64_t& at) {
  const size_t item = dtype_bytes(packed.dtype());
  if (axis == packed.rank())
    return value_json(packed.strided_data() + item * static_cast<size_t>(at++), packed.dtype());
  Json values = Json::array();
  for (int64_t i = 0; i < packed.shape()[axis]; ++i) values.push_back(values_json(packed, axis + 1, at));
  return values;
}

}  // namespace

Json values_json(const Tensor& tensor) {
  int64_t at = 0;
  return values_json(tensor.contiguous(), 0, at);
}

Json json_from(const TensorInfo& info) {
  // Member by member: a list of pairs would be built, copied and taken apart again, ten thousand times.
  Json json = Json::object();
  append_member(json, "name", info.name);
  append_member(json, "dtype", dtype_name(info.dtype));
  append_member(json, "shape", info.shape);
  append_member(json, "bytes", info.size_bytes);
  append_member(json, "file", info.file.string());
  append_member(json, "offset", info.offset_bytes);
  return json;
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
