// A request's head, judged before the library reads it. The library is lenient where two readers of one request can
// disagree about where it ends (request smuggling), so whatever is not strict HTTP/1.1 never reaches it.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr size_t kMostHeaders = 100;
inline constexpr size_t kMostTargetBytes = 8000;  // the library refuses lines beyond 8192 bytes in other words
inline constexpr size_t kMostHeaderLineBytes = 8000;

struct HeadFault {
  int status = 400;
  std::string message;
};

// `head`: everything up to and including the empty line.
std::optional<HeadFault> fault_in_head(std::string_view head);

// Where the empty line that ends a head ends; npos: not here yet. A head whose lines end in a bare line feed ends too:
// it is to be refused at once, not waited for. `from`: no end lies before it.
size_t end_of_head(std::string_view received, size_t from = 0);

}  // namespace lockstep
