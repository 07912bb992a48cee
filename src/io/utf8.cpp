#include "io/utf8.h"

namespace lockstep {

bool is_valid_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const unsigned lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    if (lead < 0xC2 || lead > 0xF4) return false;
    const size_t more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (more >= text.size() - i) return false;
    for (size_t k = 1; k <= more; ++k)
      if ((byte(i + k) & 0xC0) != 0x80) return false;
    const unsigned second = byte(i + 1);
    const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
    const bool surrogate = lead == 0xED && second > 0x9F, beyond = lead == 0xF4 && second > 0x8F;
    if (overlong || surrogate || beyond) return false;
    i += more + 1;
  }
  return true;
}

}  // namespace lockstep
