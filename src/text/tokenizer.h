// The byte-level BPE tokenizer of the Qwen2 family, token for token that of the official library.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_file.h"

namespace lockstep {

// Immutable once loaded: any number of threads may encode with one.
class Tokenizer {
 public:
  static Tokenizer load(const fs::path& folder);
  explicit Tokenizer(TokenizerFile file);

  // Throws kBadInput, with the offset, when the text is not UTF-8.
  std::vector<int32_t> encode(std::string_view utf8) const;
  // The bytes the ids stand for. Ids that cut a character apart give bytes that are not UTF-8.
  std::string decode(std::span<const int32_t> ids) const;

  // The text a model wrote: special tokens and ids without a token left out, bytes that are no UTF-8 replaced, blanks
  // at both ends removed.
  std::string decode_written(std::span<const int32_t> ids) const;

  // A token as vocabulary files write it ("Ġthe"), or an added one.
  std::optional<int32_t> id_of(std::string_view token) const { return vocabulary_.find(token); }
  size_t vocab_size() const { return vocabulary_.size(); }  // with the added tokens

 private:
  class Encoder;

  Vocabulary vocabulary_;
  Merges merges_;
  bool nfc_;
  bool ignore_merges_;
  std::array<int32_t, 256> byte_ids_{};
  std::vector<bool> is_added_;     // by id
  std::vector<bool> is_special_;   // by id
  TokenMatcher raw_, normalized_;  // added tokens, by the text they are looked for in
};

}  // namespace lockstep
