// Reads the files of a tokenizer folder: tokenizer.json, or vocab.json with merges.txt, and the added tokens beside
// them. Anything that would change ids and that we do not do is refused by name.
#pragma once
#include <string_view>
#include <vector>

#include "base/file.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/vocabulary.h"

namespace lockstep {

inline constexpr uint64_t kMaxTokenizerBytes = 128ull << 20;

struct TokenizerFile {
  Vocabulary vocabulary;  // of the model; added tokens may lie in it or beyond
  Merges merges;
  std::vector<AddedToken> added;
  bool nfc = false;
  bool ignore_merges = false;  // a piece that is a token is taken whole
};

TokenizerFile parse_tokenizer_json(std::string_view json, std::string_view origin);
TokenizerFile parse_vocab_and_merges(std::string_view vocab_json, std::string_view merges_text,
                                     std::string_view origin);

TokenizerFile read_tokenizer_folder(const fs::path& folder);

}  // namespace lockstep
