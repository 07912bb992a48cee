#include "base/shown_json.h"

#include "base/escape.h"

namespace lockstep {

std::string shown_json(const Json& document, int indent) {
  return escaped_in_json(document.dump(indent, ' ', false, Json::error_handler_t::replace));
}

Json with_strings_escaped(Json document) {
  if (document.is_string()) return escaped(document.get_ref<const std::string&>(), Keep::kLineBreaks);
  if (document.is_array())
    for (Json& item : document) item = with_strings_escaped(std::move(item));
  if (document.is_object()) {
    Json shown = Json::object();
    for (auto& [key, value] : document.get_ref<Json::object_t&>())
      append_member(shown, escaped(key), with_strings_escaped(std::move(value)));
    return shown;
  }
  return document;
}

}  // namespace lockstep
