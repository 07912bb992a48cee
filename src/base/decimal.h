// Numbers with a fraction out of text, as std::from_chars reads them: whatever the locale, no blanks, no plus sign, no
// hexadecimal. The C++ library of a Mac reads whole numbers so, and no others before its version 20.
#pragma once
#include <charconv>

namespace lockstep {

std::from_chars_result read_decimal(const char* begin, const char* end, double& value);

}  // namespace lockstep
