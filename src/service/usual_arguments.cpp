// Arguments that many operations share, each in one place so that every face describes it in the same words.
#include <fmt/format.h>

#include "service/groups.h"

namespace lockstep {

using enum ArgumentType;

Argument session_argument() {
  return {.name = "session", .help = "name or id of the session (default: the one started last)"};
}

Argument max_wait_argument(double standard) {
  return {.name = "max_wait",
          .type = kNumber,
          .help = "seconds to wait for a stop, then report that the program is running",
          .standard = standard,
          .least = 0,
          .most = 86400};
}

Argument frame_argument() {
  return {.name = "frame",
          .type = kInteger,
          .help = "the frame to look at; 0 is the innermost",
          .standard = 0,
          .least = 0,
          .most = 1e6};
}

Argument thread_argument() {
  return {.name = "thread", .type = kInteger, .help = "id of a stopped thread (default: the current one)"};
}

Argument limit_argument(const char* items, int64_t standard, int64_t most) {
  return {.name = "limit",
          .type = kInteger,
          .help = fmt::format("maximum number of {}", items),
          .standard = standard,
          .least = 1,
          .most = static_cast<double>(most)};
}

Argument from_argument() {
  return {.name = "from", .type = kInteger, .help = "number of the first row", .standard = 0, .least = 0, .most = 1e12};
}

}  // namespace lockstep
