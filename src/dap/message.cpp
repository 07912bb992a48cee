#include "dap/message.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/shown_json.h"

namespace lockstep {
namespace {

constexpr std::string_view kLineEnd = "\r\n", kLengthName = "content-length";

[[noreturn]] void refuse_message(const std::string& what) {
  fail(Code::kCorrupt, "dap", what, {.expected = "Content-Length: N, an empty line, N bytes of JSON"});
}

// A line of a header; whatever else talks to us, such as a browser, is refused at its first one.
std::pair<std::string, std::string_view> header_field(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) refuse_message("a line of the header has no name");
  std::string name;
  for (const char c : line.substr(0, colon)) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && c != '-') refuse_message("a name in the header holds another character than letters");
    name += static_cast<char>(letter ? c | 0x20 : c);
  }
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
  while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
  return {std::move(name), value};
}

size_t length_from(std::string_view text) {
  size_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    refuse_message("the length is no number");
  if (length > kMostDapMessageBytes)
    fail(Code::kCorrupt, "dap", "the message is too long",
         {.expected = "at most " + std::to_string(kMostDapMessageBytes) + " bytes", .got = std::to_string(length)});
  return length;
}

}  // namespace

bool DapReader::read_header() {
  const std::string_view rest = std::string_view(received_).substr(at_);
  // Line by line, so that what is no header is known at its first line and not only at its end.
  size_t from = 0;
  std::optional<size_t> length;
  while (true) {
    const size_t end = rest.find(kLineEnd, from);
    if (std::min(end, rest.size()) > kMostDapHeaderBytes) refuse_message("the header is too long");
    if (end == std::string_view::npos) return false;
    const std::string_view line = rest.substr(from, end - from);
    from = end + kLineEnd.size();
    if (line.empty()) break;
    const auto [name, value] = header_field(line);
    if (name != kLengthName) continue;
    if (length) refuse_message("the length is given twice");
    length = length_from(value);
  }
  if (!length) refuse_message("the header holds no length");
  expected_ = length;
  at_ += from;
  return true;
}

std::optional<Json> DapReader::next() {
  if (!expected_ && !read_header()) return std::nullopt;
  if (received_.size() - at_ < *expected_) return std::nullopt;
  Json message = parse_json(std::string_view(received_).substr(at_, *expected_), "the message");
  at_ += *expected_;
  expected_.reset();
  if (at_ == received_.size() || at_ > (1 << 16)) {
    received_.erase(0, at_);
    at_ = 0;
  }
  return message;
}

std::string dap_frame(const Json& message) {
  const std::string body = shown_json(message);
  return "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace lockstep
