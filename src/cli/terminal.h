// What stdout can show: colours, and how wide a line may be.
#pragma once
#include <string_view>

#include "base/text.h"
#include "cli/global_options.h"

namespace lockstep {

enum class Style { kPlain, kBold, kDim, kRed, kGreen, kYellow, kCyan };

class Terminal {
 public:
  explicit Terminal(const GlobalOptions& options);
  // The text itself where colours are off. A string is escaped, as in every Text.
  template <typename Value>
  Text styled(const Value& value, Style style) const {
    return in_style(Text::of("{}", value), style);
  }
  bool color() const { return color_; }
  bool interactive() const { return interactive_; }
  int width() const { return width_; }  // 100 where stdout is no terminal

 private:
  Text in_style(const Text& text, Style style) const;
  bool color_, interactive_;
  int width_;
};

int display_width(std::string_view utf8);  // characters, one column each

}  // namespace lockstep
