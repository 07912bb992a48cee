// The message of a log point, "loss {loss} at {step}", as the one Python expression that a breakpoint logs.
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

std::string log_expression(std::string_view message);

}  // namespace lockstep
