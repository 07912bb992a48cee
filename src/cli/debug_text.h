// The answers of `lockstep debug` as people read them.
#pragma once
#include <string>

#include "base/json.h"
#include "cli/terminal.h"

namespace lockstep {

Text debug_text(const std::string& operation, const Json& result, const Terminal& terminal);

}  // namespace lockstep
