// Whether bytes from a file are text.
#pragma once
#include <string_view>

namespace lockstep {

bool is_valid_utf8(std::string_view text);  // no overlong forms, no surrogates

}  // namespace lockstep
