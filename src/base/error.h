// The one error type. Every message reads "[operation] what happened; expected A, got B; try C".
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

enum class Code {
  kUsage,        // the command line or a call is wrong
  kBadInput,     // a value or a file is not acceptable
  kNotFound,     // a file, tensor, run or name does not exist
  kCorrupt,      // a file breaks its own format
  kUnsupported,  // well formed, but not something we do
  kIo,           // the system refused a file operation
  kMemory,       // not enough memory, or a limit would be passed
  kDevice,       // an accelerator or CPU feature failed
  kCancelled,    // interrupted by the user
  kConflict,     // not possible in the present state; possible in another
  kInternal,     // a bug in Lockstep
};

std::string_view code_name(Code code);  // stable, for --json: "bad_input", "not_found", ...
int exit_status(Code code);             // 2 usage, bad input or conflict, 3 failure, 4 our bug, 130 interrupted

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

struct Detail {
  std::string expected = {};
  std::string got = {};
  std::string hint = {};  // follows "try "
};

[[noreturn]] void fail(Code code, std::string_view operation, std::string_view what, const Detail& detail = {});

}  // namespace lockstep
