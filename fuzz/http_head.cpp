// Layer: tensor with http/http_head.cpp
// Fuzzes what a client sends before its token is known: a head is refused, or every reader of HTTP agrees on its lines.
#include "http/http_head.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "fuzz_input.h"
#include "structure.h"

namespace {

const std::string_view kHeadNames[] = {"Host",   "Content-Length", "Transfer-Encoding", "Authorization",  "Origin",
                                       "Expect", "Connection",     "Content-Type",      "content-length", "X"};
const std::string_view kHeadValues[] = {"127.0.0.1",
                                        "localhost:80",
                                        "2",
                                        "0",
                                        "chunked",
                                        "-1",
                                        "+2",
                                        "2, 2",
                                        "2 ",
                                        "",
                                        "100-continue",
                                        "close",
                                        "Bearer abc",
                                        "null",
                                        "0x2",
                                        "identity, chunked",
                                        "18446744073709551616",
                                        "application/json"};
const std::string_view kHeadBreaks[] = {"\r\n",   "\n",     "\r",       "\r\n ",
                                        "\r\n\t", "\r\r\n", "\r\n\r\n", std::string_view("\0", 1)};
const std::string_view kHeadColons[] = {": ", ":", " : ", "\t: ", " :", "", ":\x1b", "::"};
const std::string_view kRequestLines[] = {"GET /v1/health HTTP/1.1", "POST /mcp HTTP/1.0", "GET  / HTTP/1.1",
                                          "GET http://a/ HTTP/1.1",  "OPTIONS * HTTP/1.1", "GET / HTTP/2",
                                          "G\tT / HTTP/1.1",         "GET /%00 HTTP/1.1",  " / HTTP/1.1"};

// A head is a request line, then a name, a colon, a value and a break for each header: one of these changes.
std::string mutated_head(std::string_view text, lockstep::FuzzRandom& random) {
  using lockstep::below;
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find("\r\n", at), text.size());
    lines.emplace_back(text.substr(at, end - at));
    at = end + 2;
  }
  if (lines.empty()) lines.emplace_back(kRequestLines[0]);
  const auto place = [&] { return lines.begin() + static_cast<std::ptrdiff_t>(below(random, lines.size())); };
  const auto header = [&](std::string_view colon) {
    return std::string(kHeadNames[below(random, std::size(kHeadNames))]) + std::string(colon) +
           std::string(kHeadValues[below(random, std::size(kHeadValues))]);
  };
  std::string line_break = "\r\n";
  switch (below(random, 9)) {
    case 0:
      lines.front() = kRequestLines[below(random, std::size(kRequestLines))];
      break;
    case 1:
      lines.insert(place() + 1, header(": "));
      break;
    case 2:
      lines.insert(place() + 1, header(kHeadColons[below(random, std::size(kHeadColons))]));
      break;
    case 3:
      lines.push_back(std::string(*place()));
      break;
    case 4:
      if (lines.size() > 1) lines.erase(place());
      break;
    case 5:
      *place() = lockstep::mutated_bytes(*place(), 8);
      break;
    case 6:
      *place() += kHeadBreaks[below(random, std::size(kHeadBreaks))];
      break;
    case 7:
      for (size_t n = below(random, 110); n > 0; --n) lines.push_back("a:b");
      break;
    default:
      std::swap(*place(), *place());
  }
  std::string out;
  for (const std::string& line : lines) out += line + line_break;
  if (below(random, 8) != 0) out += "\r\n";
  return out;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  lockstep::FuzzRandom random(seed | 1u);
  for (int i = 0; i < 3; ++i) random();
  const std::string_view given(reinterpret_cast<const char*>(data), size);
  // The first byte chooses the frame; a head of its own has one that chooses none ('D', 'G' and 'P' would differ).
  if (lockstep::below(random, 4) == 0) return LLVMFuzzerMutate(data, size, max_size);
  const bool own = size > 0 && data[0] % 4 == 0;
  std::string made = mutated_head(own ? given.substr(1) : given.substr(std::min<size_t>(size, 1)), random);
  made.insert(made.begin(), own || size == 0 ? '@' : static_cast<char>(data[0]));
  made.resize(std::min(made.size(), max_size));
  std::memcpy(data, made.data(), made.size());
  return made.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    // Structure first: three bytes choose a frame for the rest, so that most inputs reach the headers.
    const std::string_view given(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::string text(given.substr(!given.empty() && given[0] == '@'));
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
    // Accepted: lines end in CRLF alone, every header is NAME: VALUE, one length and one host at most.
    size_t lengths = 0, hosts = 0, line = 0;
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
        hosts += name == "host";
        if (lengths > 1 || hosts > 1) std::abort();
      }
      at = next + 2;
      ++line;
    }
  });
}
