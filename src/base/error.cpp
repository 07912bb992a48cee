#include "base/error.h"

#include "base/escape.h"

namespace lockstep {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kUsage:
      return "usage";
    case Code::kBadInput:
      return "bad_input";
    case Code::kNotFound:
      return "not_found";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kIo:
      return "io";
    case Code::kMemory:
      return "memory";
    case Code::kDevice:
      return "device";
    case Code::kCancelled:
      return "cancelled";
    case Code::kConflict:
      return "conflict";
    case Code::kInternal:
      return "internal";
  }
  return "internal";
}

int exit_status(Code code) {
  switch (code) {
    case Code::kUsage:
    case Code::kBadInput:
    case Code::kNotFound:
    case Code::kCorrupt:
    case Code::kUnsupported:
    case Code::kConflict:
      return 2;
    case Code::kIo:
    case Code::kMemory:
    case Code::kDevice:
      return 3;
    case Code::kCancelled:
      return 130;
    case Code::kInternal:
      return 4;
  }
  return 4;
}

void fail(Code code, std::string_view operation, std::string_view what, const Detail& detail) {
  std::string message = "[" + std::string(operation) + "] " + std::string(what);
  if (!detail.expected.empty()) message += "; expected " + detail.expected;
  if (!detail.got.empty()) message += (detail.expected.empty() ? "; got " : ", got ") + detail.got;
  if (!detail.hint.empty()) message += "; try " + detail.hint;
  throw Error(code, escaped(message, Keep::kLineBreaks));  // names from files may hold anything
}

}  // namespace lockstep
