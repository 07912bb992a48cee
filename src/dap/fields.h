// Fields of a client's message, whatever it may have put there.
#pragma once
#include <cmath>
#include <string>

#include "base/json.h"

namespace lockstep::dap {

inline Json field(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? Json(nullptr) : *found;
}

inline std::string text(const Json& object, const char* name, const std::string& otherwise = {}) {
  const Json value = field(object, name);
  return value.is_string() ? value.get<std::string>() : otherwise;
}

inline int64_t whole(const Json& object, const char* name, int64_t otherwise = 0) {
  const Json value = field(object, name);
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return otherwise;
  if (value.is_number_float())  // some clients write 3 as 3.0
    return value.get<double>() == std::trunc(value.get<double>()) && std::abs(value.get<double>()) < 0x1p53
               ? static_cast<int64_t>(value.get<double>())
               : otherwise;
  return value.is_number_integer() ? value.get<int64_t>() : otherwise;
}

inline bool flag(const Json& object, const char* name, bool otherwise = false) {
  const Json value = field(object, name);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

inline Json list(const Json& object, const char* name) {
  Json value = field(object, name);
  return value.is_array() ? value : Json::array();
}

}  // namespace lockstep::dap
