#include "toolbox/html_text.h"

#include "base/escape.h"

namespace lockstep {

std::string in_html(std::string_view text) {
  std::string out;
  for (const char c : escaped(text)) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  return out;
}

}  // namespace lockstep
