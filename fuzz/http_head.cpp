// Layer: rest
// Fuzzes what a client sends before its token is known: a head is refused, or every reader of HTTP agrees on its lines.
#include "rest/http_head.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    // Structure first: three bytes choose a frame for the rest, so that most inputs reach the headers.
    const std::string_view given(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::string text(given);
    if (!given.empty() && given[0] % 4 != 0) {
      text = "POST /v1/debug/clear HTTP/1.1\r\nHost: 127.0.0.1\r\n";
      if (given[0] % 4 > 1) text += "Content-Length: 2\r\n";
      text += given.substr(1);
      if (given[0] % 4 > 2) text += "\r\n\r\n";
    }
    const size_t end = end_of_head(text);
    if (end == std::string::npos) return;
    if (end > text.size()) std::abort();
    const std::string head = text.substr(0, end);
    for (size_t from = 0; from < head.size(); ++from)
      if (end_of_head(text, from) < end) std::abort();
    if (fault_in_head(head)) return;
    // Accepted: lines end in CRLF alone, every header is NAME: VALUE, one length at most.
    size_t lengths = 0, line = 0;
    for (size_t at = 0; at < head.size();) {
      const size_t next = head.find("\r\n", at);
      if (next == std::string::npos) std::abort();
      const std::string one = head.substr(at, next - at);
      if (one.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) std::abort();
      if (line > 0 && !one.empty()) {
        const size_t colon = one.find(':');
        if (colon == std::string::npos || colon == 0 || one[colon - 1] == ' ' || one[0] == ' ' || one[0] == '\t')
          std::abort();
        std::string name = one.substr(0, colon);
        for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        lengths += name == "content-length" || name == "transfer-encoding";
        if (name == "transfer-encoding" && lengths > 1) std::abort();
      }
      at = next + 2;
      ++line;
    }
  });
}
