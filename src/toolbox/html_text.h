// Text from outside inside an HTML page.
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

std::string in_html(std::string_view text);

}  // namespace lockstep
