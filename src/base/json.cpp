#include "base/json.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json_tree.h"

namespace lockstep {

Json parse_json(std::string_view text, std::string_view origin) {
  JsonTreeBuilder<Json> builder(origin, kMaxJsonDepth);
  Json::sax_parse(text.begin(), text.end(), &builder);  // the builder throws on whatever is wrong
  return builder.take();
}

Json read_json(const fs::path& path, uint64_t max_bytes) {
  return parse_json(read_text(path, max_bytes), path.string());
}

void append_member(Json& object, std::string key, Json value) {
  object.get_ref<Json::object_t&>().emplace_back(std::move(key), std::move(value));
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
