#include "base/message.h"

#include "base/error.h"

namespace lockstep {

std::optional<Json> json_message(std::string_view text) {
  try {
    return parse_json(text, "the message");
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace lockstep
