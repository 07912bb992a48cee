// JSON for small documents (configs, manifests, results). Strict: size and depth are bounded, duplicate keys are
// refused, NaN and infinities are written as strings, because strict JSON has no other way to say them.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/file.h"

namespace lockstep {

using Json = nlohmann::ordered_json;

inline constexpr uint64_t kMaxJsonBytes = 256ull << 20;
inline constexpr int kMaxJsonDepth = 64;

Json parse_json(std::string_view text, std::string_view origin);
Json read_json(const fs::path& path, uint64_t max_bytes = kMaxJsonBytes);
// Appends a member whose key the caller knows to be new. An ordered object looks through all its keys for json[key].
void append_member(Json& object, std::string key, Json value);
Json json_number(double value);             // NaN → "NaN", infinities → "Infinity", "-Infinity"
double number_from_json(const Json& json);  // the inverse

}  // namespace lockstep
