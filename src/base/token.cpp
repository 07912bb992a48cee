#include "base/token.h"

#include <cstdio>
#include <random>

namespace lockstep {

std::string new_token() {
  std::random_device device;
  std::string token;
  for (int i = 0; i < 8; ++i) {
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", device());
    token += digits;
  }
  return token;
}

}  // namespace lockstep
