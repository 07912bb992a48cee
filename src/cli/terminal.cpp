#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace lockstep {

Terminal::Terminal(const GlobalOptions& options) : interactive_(::isatty(STDOUT_FILENO) == 1), width_(100) {
  const char* no_color = std::getenv("NO_COLOR");
  const bool wanted = interactive_ && !(no_color && *no_color);
  color_ = options.color == "always" || (options.color == "auto" && wanted);
  winsize size{};
  if (interactive_ && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    width_ = std::clamp<int>(size.ws_col, 40, 400);
}

Text Terminal::in_style(const Text& text, Style style) const {
  static constexpr const char* kCodes[] = {"", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m"};
  if (!color_ || style == Style::kPlain || text.empty()) return text;
  return Text::trusted(kCodes[static_cast<int>(style)] + text.string() + "\x1b[0m");
}

int display_width(std::string_view utf8) {
  int width = 0;
  for (const char c : utf8) width += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return width;
}

}  // namespace lockstep
