// Which tensors of a file or folder are meant, and what they hold: for the command line and the service alike.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "io/tensor_source.h"

namespace lockstep {

// Everything the pattern names, in file order; all without one. Error{kNotFound} with the nearest names.
std::vector<const TensorInfo*> select_tensors(const TensorSource& source, const std::string& pattern);
const TensorInfo& select_one(const TensorSource& source, const std::string& name);
bool is_glob(const std::string& pattern);

Tensor load_selected(const TensorSource& source, const TensorInfo& info, const std::string& slice);

Json json_from(const TensorInfo& info);
Json values_json(const Tensor& tensor);  // nested as the shape is; integers exact

}  // namespace lockstep
