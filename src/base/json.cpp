#include "base/json.h"

#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"

namespace lockstep {

Json parse_json(std::string_view text, std::string_view origin) {
  // A callback parser sees every key once: that is where depth and duplicates are caught, before a tree exists.
  std::vector<std::set<std::string>> open_keys;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxJsonDepth)
      fail(Code::kCorrupt, "json", std::string(origin) + " is nested too deeply",
           {.expected = "at most " + std::to_string(kMaxJsonDepth) + " levels"});
    if (event == Json::parse_event_t::object_start) open_keys.emplace_back();
    if (event == Json::parse_event_t::object_end) open_keys.pop_back();
    if (event == Json::parse_event_t::key && !open_keys.back().insert(parsed.get<std::string>()).second)
      fail(Code::kCorrupt, "json", std::string(origin) + " holds the key \"" + parsed.get<std::string>() + "\" twice");
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::exception& error) {
    fail(Code::kCorrupt, "json", std::string(origin) + " is not valid JSON: " + error.what());
  }
}

Json read_json(const fs::path& path, uint64_t max_bytes) {
  return parse_json(read_text(path, max_bytes), path.string());
}

Json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

double number_from_json(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (json == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (json == "Infinity") return std::numeric_limits<double>::infinity();
  if (json == "-Infinity") return -std::numeric_limits<double>::infinity();
  fail(Code::kCorrupt, "json", "not a number",
       {.expected = "a number, \"NaN\", \"Infinity\" or \"-Infinity\"", .got = json.dump().substr(0, 60)});
}

}  // namespace lockstep
