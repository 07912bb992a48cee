// What stdout can show: colours, and how wide a line may be.
#pragma once
#include <string>
#include <string_view>

#include "cli/global_options.h"

namespace lockstep {

enum class Style { kPlain, kBold, kDim, kRed, kGreen, kYellow, kCyan };

class Terminal {
 public:
  explicit Terminal(const GlobalOptions& options);
  std::string styled(std::string_view text, Style style) const;  // the text itself where colours are off
  bool color() const { return color_; }
  bool interactive() const { return interactive_; }
  int width() const { return width_; }  // 100 where stdout is no terminal

 private:
  bool color_, interactive_;
  int width_;
};

int display_width(std::string_view utf8);  // characters, one column each

}  // namespace lockstep
