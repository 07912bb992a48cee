// Layer: text
// Any bytes through the tokenizer: refused as not UTF-8, or the ids give the normalised text back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/byte_symbols.h"
#include "text/nfc.h"
#include "text/tokenizer.h"

namespace {

lockstep::Tokenizer make_tokenizer() {
  lockstep::Json vocab = lockstep::Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::string symbol;
    lockstep::append_utf8(lockstep::symbol_from_byte(static_cast<unsigned char>(byte)), symbol);
    vocab[symbol] = byte;
  }
  std::string merges = "#version: 0.2\n";
  const char* const pairs[][2] = {{"a", "b"}, {"ab", "ab"}, {"a", "a"},  {"Ġ", "a"},
                                  {"Ã", "©"}, {"Ġ", "Ġ"},   {"aa", "aa"}};
  for (const auto& [left, right] : pairs) {
    vocab[std::string(left) + right] = vocab.size();
    merges += std::string(left) + " " + right + "\n";
  }
  return lockstep::Tokenizer(lockstep::parse_vocab_and_merges(vocab.dump(), merges, "fuzz"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  static const Tokenizer tokenizer = make_tokenizer();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    std::string buffer;
    const std::string again = tokenizer.decode(tokenizer.encode(text));
    if (again != normalize_nfc(text, buffer)) std::abort();
  } catch (const Error& error) {
    if (error.code() != Code::kBadInput) std::abort();
  }
  return 0;
}
