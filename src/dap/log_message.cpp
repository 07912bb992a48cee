#include "dap/log_message.h"

#include <vector>

#include "base/json.h"

namespace lockstep {
namespace {

struct LogPiece {
  std::string text;
  bool code = false;
};

// Where the expression that begins at `from` ends: at the brace that closes it, not at one inside it or in a text.
size_t end_of_expression(std::string_view message, size_t from) {
  int depth = 0;
  char quote = 0;
  for (size_t i = from; i < message.size(); ++i) {
    const char c = message[i];
    if (quote) {
      if (c == '\\')
        ++i;
      else if (c == quote)
        quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '{' || c == '[' || c == '(') {
      ++depth;
    } else if (c == '}' && depth == 0) {
      return i;
    } else if (c == '}' || c == ']' || c == ')') {
      --depth;
    }
  }
  return std::string_view::npos;
}

std::vector<LogPiece> pieces_of(std::string_view message) {
  std::vector<LogPiece> pieces;
  std::string plain;
  for (size_t i = 0; i < message.size(); ++i) {
    const char c = message[i];
    if ((c == '{' || c == '}') && i + 1 < message.size() && message[i + 1] == c) {
      plain += c;
      ++i;
      continue;
    }
    const size_t end = c == '{' ? end_of_expression(message, i + 1) : std::string_view::npos;
    if (end == std::string_view::npos ||
        message.substr(i + 1, end - i - 1).find_first_not_of(" \t") == std::string_view::npos) {
      plain += c;
      continue;
    }
    if (!plain.empty()) pieces.push_back({std::move(plain), false});
    plain.clear();
    pieces.push_back({std::string(message.substr(i + 1, end - i - 1)), true});
    i = end;
  }
  if (!plain.empty()) pieces.push_back({std::move(plain), false});
  return pieces;
}

// A JSON text is a Python text too, once every character beyond ASCII is written as a number.
std::string python_text(const std::string& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace

std::string log_expression(std::string_view message) {
  const std::vector<LogPiece> pieces = pieces_of(message);
  if (pieces.size() == 1 && pieces[0].code) return "(" + pieces[0].text + "\n)";  // its value: a tensor is summarised
  std::string format, values;
  for (const LogPiece& piece : pieces) {
    if (piece.code) {
      format += "%s";
      values += "(" + piece.text + "\n), ";
      continue;
    }
    for (const char c : piece.text) format += c == '%' ? "%%" : std::string(1, c);
  }
  if (values.empty()) {
    std::string plain;
    for (const LogPiece& piece : pieces) plain += piece.text;
    return python_text(plain);
  }
  return python_text(format) + " % (" + values + ")";
}

}  // namespace lockstep
