// Unicode normalisation form C.
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

// `text` in NFC. Text that already is, which nearly all is, comes back as the same view; otherwise the result lies in
// `buffer`. Only for text that passed check_utf8.
std::string_view normalize_nfc(std::string_view text, std::string& buffer);

}  // namespace lockstep
