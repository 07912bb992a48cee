// Layer: text
// tokenizer.json from anywhere: parsed or refused with an Error; what was parsed encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  try {
    const Tokenizer tokenizer(parse_tokenizer_json({reinterpret_cast<const char*>(data), size}, "fuzz"));
    tokenizer.decode(tokenizer.encode("ab abab  <|x|>\r\n e\u0301 12 it's \U0001F600"));
  } catch (const Error&) {
  }
  return 0;
}
