// A tokenizer small enough to read: 256 bytes and a handful of merges.
#pragma once
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "text/byte_symbols.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_file.h"

namespace lockstep {

// Id of a byte is the byte; merge k makes id 256 + k.
inline Json small_tokenizer_json(const std::vector<std::pair<std::string, std::string>>& merges = {
                                     {"a", "b"}, {"ab", "ab"}, {"a", "a"}, {"Ġ", "ab"}, {"Ã", "©"}}) {
  Json vocab = Json::object(), pairs = Json::array();
  for (int byte = 0; byte < 256; ++byte) {
    std::string symbol;
    append_utf8(symbol_from_byte(static_cast<unsigned char>(byte)), symbol);
    vocab[symbol] = byte;
  }
  for (const auto& [left, right] : merges) {
    const int id = static_cast<int>(vocab.size());
    vocab[left + right] = id;
    pairs.push_back({left, right});
  }
  const int end = static_cast<int>(vocab.size());
  return {{"added_tokens",
           {{{"id", end}, {"content", "<|x|>"}, {"special", true}, {"normalized", false}},
            {{"id", end + 1}, {"content", "<|x|>y"}, {"special", false}, {"normalized", false}},
            {{"id", end + 2}, {"content", "é!"}, {"special", false}, {"normalized", true}}}},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"}, {"pattern", {{"Regex", kQwen2Pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}}}};
}

}  // namespace lockstep
