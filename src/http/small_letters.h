#pragma once
#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace lockstep {

// Names of headers and of hosts are the same in letters of either size.
inline std::string in_small_letters(std::string_view given) {
  std::string text(given);
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace lockstep
