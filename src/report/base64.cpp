#include "report/base64.h"

#include <algorithm>

namespace lockstep {

std::string base64(std::span<const uint8_t> bytes) {
  static const char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(3, bytes.size() - i);
    uint32_t word = 0;
    for (size_t k = 0; k < 3; ++k) word = word << 8 | (k < left ? bytes[i + k] : 0);
    for (size_t k = 0; k < 4; ++k) out += k <= left ? kAlphabet[word >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace lockstep
