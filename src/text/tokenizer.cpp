#include "text/tokenizer.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <deque>

#include "base/error.h"
#include "base/utf8.h"
#include "text/byte_symbols.h"
#include "text/nfc.h"
#include "text/piece_cache.h"
#include "text/pre_tokenizer.h"

namespace lockstep {
namespace {

constexpr size_t kMaxAddedBytes = 1024;

}  // namespace

Tokenizer Tokenizer::load(const fs::path& folder) {
  return Tokenizer(read_tokenizer_folder(folder));
}

Tokenizer::Tokenizer(TokenizerFile file)
    : vocabulary_(std::move(file.vocabulary)),
      merges_(std::move(file.merges)),
      nfc_(file.nfc),
      ignore_merges_(file.ignore_merges) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string symbol;
    append_utf8(symbol_from_byte(static_cast<unsigned char>(byte)), symbol);
    byte_ids_[static_cast<size_t>(byte)] = vocabulary_.find(symbol).value_or(-1);
  }
  for (const AddedToken& token : file.added) {
    if (token.content.empty()) continue;
    if (token.content.size() > kMaxAddedBytes)  // each is looked for at every place where it may start
      fail(Code::kCorrupt, "tokenizer", fmt::format("the added token {} is too long", token.id),
           {.expected = fmt::format("at most {} bytes", kMaxAddedBytes), .got = std::to_string(token.content.size())});
    vocabulary_.add(token.content, token.id);
    const auto index = static_cast<size_t>(token.id);
    if (is_added_.size() <= index) is_added_.resize(index + 1), is_special_.resize(index + 1);
    if (token.special) is_special_[index] = true;
    if (is_added_[index]) continue;  // the same token from a second file
    is_added_[index] = true;
    std::string buffer;
    if (token.normalized && nfc_) {
      normalized_.add(normalize_nfc(token.content, buffer), static_cast<int32_t>(token.id));
    } else {
      raw_.add(token.content, static_cast<int32_t>(token.id));
    }
  }
}

// One call of encode.
class Tokenizer::Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, size_t text_bytes)
      : tokenizer_(tokenizer), bpe_(tokenizer.merges_, tokenizer.byte_ids_), cache_(text_bytes) {
    out_.reserve(text_bytes / 3 + 16);
  }

  void encode_raw(std::string_view text) {
    split(text, tokenizer_.raw_, [this](std::string_view rest) {
      if (tokenizer_.nfc_) {
        std::string& buffer = normalized_.emplace_back();
        rest = normalize_nfc(rest, buffer);
        if (buffer.empty()) normalized_.pop_back();
      }
      split(rest, tokenizer_.normalized_, [this](std::string_view plain) { encode_plain(plain); });
    });
  }
  std::vector<int32_t> take() { return std::move(out_); }

 private:
  template <typename Rest>
  void split(std::string_view text, const TokenMatcher& matcher, const Rest& rest) {
    size_t at = 0;
    while (at < text.size()) {
      const TokenMatcher::Match match = matcher.find(text, at);
      if (match.begin > at) rest(text.substr(at, match.begin - at));
      if (match.id >= 0) out_.push_back(match.id);
      at = match.end;
    }
  }

  void encode_plain(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = piece_end(text, at);
      encode_piece(text.substr(at, end - at));
      at = end;
    }
  }

  void encode_piece(std::string_view piece) {
    PieceCache::Entry* entry = nullptr;
    if (piece.size() > 1 && piece.size() <= PieceCache::kMaxBytes) {
      entry = &cache_.entry(piece);
      if (entry->matches(piece)) {
        const size_t first = out_.size();
        out_.resize(first + entry->count);
        for (size_t i = 0; i < entry->count; ++i) out_[first + i] = out_[entry->first + i];
        return;
      }
    }
    const size_t first = out_.size();
    if (!tokenizer_.ignore_merges_ || !take_whole(piece)) bpe_.encode(piece, out_);
    if (entry != nullptr) entry->set(piece, first, out_.size() - first);
  }

  bool take_whole(std::string_view piece) {
    std::string token;
    for (const char c : piece) append_utf8(symbol_from_byte(static_cast<unsigned char>(c)), token);
    const auto id = tokenizer_.vocabulary_.find(token);
    if (id) out_.push_back(*id);
    return id.has_value();
  }

  const Tokenizer& tokenizer_;
  Bpe bpe_;
  PieceCache cache_;
  std::deque<std::string> normalized_;  // kept for the whole call: the cache points into it
  std::vector<int32_t> out_;
};

std::vector<int32_t> Tokenizer::encode(std::string_view utf8) const {
  check_utf8(utf8, "tokenizer");
  Encoder encoder(*this, utf8.size());
  encoder.encode_raw(utf8);
  return encoder.take();
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (!vocabulary_.contains(id))
      fail(Code::kBadInput, "tokenizer", fmt::format("there is no token {}", id),
           {.expected = fmt::format("an id below {}", vocabulary_.end_id())});
    const std::string_view token = vocabulary_.token(id);
    const bool added = static_cast<size_t>(id) < is_added_.size() && is_added_[static_cast<size_t>(id)];
    const auto bytes = added ? std::nullopt : bytes_from_token(token);
    text.append(bytes ? *bytes : token);
  }
  return text;
}

std::string Tokenizer::decode_written(std::span<const int32_t> ids) const {
  std::vector<int32_t> kept;
  for (const int32_t id : ids) {
    const auto index = static_cast<size_t>(id);
    if (vocabulary_.contains(id) && !(index < is_special_.size() && is_special_[index])) kept.push_back(id);
  }
  return stripped(valid_utf8(decode(kept)));
}

}  // namespace lockstep
