// Messages of the Debug Adapter Protocol as they lie on a pipe: a header of a few lines, an empty line, JSON. What
// comes in is hostile until it is parsed: the header, the length and the depth are bounded before anything is kept.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace lockstep {

inline constexpr size_t kMostDapHeaderBytes = 4 << 10;
inline constexpr size_t kMostDapMessageBytes = 4 << 20;

class DapReader {
 public:
  void feed(std::string_view bytes) { received_.append(bytes); }
  // The next whole message; nothing: it has not arrived yet. Error{kCorrupt}: this is not the protocol, and what
  // follows cannot be understood either.
  std::optional<Json> next();

 private:
  bool read_header();

  std::string received_;
  size_t at_ = 0;                   // of it, what was used
  std::optional<size_t> expected_;  // bytes of the message whose header was read
};

std::string dap_frame(const Json& message);  // with its header

}  // namespace lockstep
