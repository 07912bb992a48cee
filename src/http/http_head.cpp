#include "http/http_head.h"

#include <algorithm>
#include <cctype>

namespace lockstep {
namespace {

constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";  // beside letters and digits, in a word

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) || kMarks.find(static_cast<char>(c)) != std::string_view::npos);
  });
}

bool same_name(std::string_view name, std::string_view small) {
  return name.size() == small.size() &&
         std::equal(name.begin(), name.end(), small.begin(),
                    [](unsigned char a, char b) { return static_cast<char>(std::tolower(a)) == b; });
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::optional<HeadFault> fault_in_request_line(std::string_view line) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || line.find(' ', first + 1) != last)
    return HeadFault{400, "the request line is not METHOD TARGET VERSION"};
  const std::string_view method = line.substr(0, first), target = line.substr(first + 1, last - first - 1),
                         version = line.substr(last + 1);
  if (!is_token(method)) return HeadFault{400, "the method is not a word"};
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return HeadFault{505, "only HTTP/1.1 and HTTP/1.0 are spoken"};
  if (target.size() > kMostTargetBytes) return HeadFault{414, "the address is too long"};
  if (target.empty() ||
      !std::all_of(target.begin(), target.end(), [](unsigned char c) { return c > 0x20 && c < 0x7F; }))
    return HeadFault{400, "the address holds characters that must be percent-encoded"};
  return std::nullopt;
}

struct HeadCounts {
  int lengths = 0, encodings = 0, hosts = 0;
};

std::optional<HeadFault> fault_in_header(std::string_view line, HeadCounts& seen) {
  if (line.front() == ' ' || line.front() == '\t') return HeadFault{400, "a header is folded over two lines"};
  if (line.size() > kMostHeaderLineBytes) return HeadFault{431, "a header is too long"};
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return HeadFault{400, "a header has no colon"};
  const std::string_view name = line.substr(0, colon), value = without_blanks(line.substr(colon + 1));
  if (!is_token(name)) return HeadFault{400, "a header's name is not a word right before its colon"};
  for (const char c : value)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F)
      return HeadFault{400, "a header holds a control character"};
  seen.lengths += same_name(name, "content-length");
  seen.encodings += same_name(name, "transfer-encoding");
  seen.hosts += same_name(name, "host");
  if (same_name(name, "origin") && value.empty()) return HeadFault{400, "Origin is empty"};
  if (same_name(name, "expect") && !same_name(value, "100-continue"))
    return HeadFault{417, "of all expectations only 100-continue is met"};
  return std::nullopt;
}

}  // namespace

size_t end_of_head(std::string_view received, size_t from) {
  for (size_t at = received.find('\n', from); at != std::string_view::npos; at = received.find('\n', at + 1)) {
    if (received.substr(at + 1, 2) == "\r\n") return at + 3;
    if (received.substr(at + 1, 1) == "\n") return at + 2;
  }
  return std::string_view::npos;
}

std::optional<HeadFault> fault_in_head(std::string_view head) {
  // The same character ends every line for every reader, or the request is none.
  for (size_t at = 0; at < head.size(); ++at) {
    if (head[at] == '\0') return HeadFault{400, "the head holds a zero byte"};
    if (head[at] == '\n' && (at == 0 || head[at - 1] != '\r')) return HeadFault{400, "a line ends without a CR"};
    if (head[at] == '\r' && (at + 1 == head.size() || head[at + 1] != '\n'))
      return HeadFault{400, "a CR stands inside a line"};
  }
  HeadCounts seen;
  size_t headers = 0;
  for (size_t begin = 0, number = 0; begin < head.size(); ++number) {
    const size_t end = head.find("\r\n", begin);
    if (end == std::string_view::npos) return HeadFault{400, "the head has no end"};
    const std::string_view line = head.substr(begin, end - begin);
    begin = end + 2;
    if (number == 0) {
      if (auto fault = fault_in_request_line(line)) return fault;
    } else if (line.empty()) {
      if (begin != head.size()) return HeadFault{400, "the head has no end"};
    } else {
      if (++headers > kMostHeaders) return HeadFault{431, "there are too many headers"};
      if (auto fault = fault_in_header(line, seen)) return fault;
    }
  }
  if (seen.lengths > 1) return HeadFault{400, "there are two Content-Length"};
  if (seen.encodings > 1) return HeadFault{400, "there are two Transfer-Encoding"};
  if (seen.hosts > 1) return HeadFault{400, "there are two Host"};
  if (seen.lengths > 0 && seen.encodings > 0) return HeadFault{400, "there are Content-Length and Transfer-Encoding"};
  return std::nullopt;
}

}  // namespace lockstep
