// One message of a peer that may be hostile, as JSON.
#pragma once
#include <optional>
#include <string_view>

#include "base/json.h"

namespace lockstep {

// Nothing where it is no JSON, or deeper than a document may be: the library reads any depth, and its writer would run
// out of stack on what it has read.
std::optional<Json> json_message(std::string_view text);

}  // namespace lockstep
