#include "text/tokenizer_config.h"

#include <fmt/format.h>

#include <charconv>
#include <set>

#include "base/error.h"

namespace lockstep {
namespace {

// Unlike tokenizer.json these hold integers beyond 64 bits (model_max_length), which simdjson does not read.
constexpr uint64_t kMaxBytes = 16 << 20;

const Json& need_object(const Json& json, const std::string& where) {
  if (!json.is_object())
    fail(Code::kCorrupt, "tokenizer", where + " is wrong",
         {.expected = "an object", .got = json.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60)});
  return json;
}

bool flag(const Json& object, const char* key, bool otherwise = false) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

AddedToken added_token_from_json(const Json& json, int64_t id, const std::string& where) {
  const auto content = need_object(json, where).find("content");
  if (content == json.end() || !content->is_string())
    fail(Code::kCorrupt, "tokenizer", where + " is wrong", {.expected = "a string \"content\""});
  for (const char* key : {"lstrip", "rstrip", "single_word"})
    if (flag(json, key))
      fail(Code::kUnsupported, "tokenizer", fmt::format("{}.{} is not supported", where, key), {.expected = "false"});
  const bool special = flag(json, "special");
  return {content->get<std::string>(), id, flag(json, "normalized", !special), special};
}

}  // namespace

void read_tokenizer_config(const fs::path& path, std::vector<AddedToken>& added) {
  const Json root = read_json(path, kMaxBytes);
  need_object(root, path.string());
  for (const char* key : {"add_prefix_space", "add_bos_token", "add_eos_token"})
    if (flag(root, key))
      fail(Code::kUnsupported, "tokenizer", fmt::format("{}: {} is not supported", path.string(), key),
           {.expected = "false"});
  const auto decoder = root.find("added_tokens_decoder");
  if (decoder == root.end()) return;
  for (const auto& [key, value] : need_object(*decoder, path.string() + ": added_tokens_decoder").items()) {
    const std::string where = fmt::format("{}: added_tokens_decoder.{}", path.string(), key);
    int64_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size())
      fail(Code::kCorrupt, "tokenizer", where + " is wrong", {.expected = "an id as its key"});
    added.push_back(added_token_from_json(value, id, where));
  }
}

void read_added_tokens(const fs::path& path, std::vector<AddedToken>& added) {
  const Json root = read_json(path, kMaxBytes);
  std::set<std::string> known;
  for (const AddedToken& token : added) known.insert(token.content);
  for (const auto& [content, id] : need_object(root, path.string()).items()) {
    if (!id.is_number_integer())
      fail(Code::kCorrupt, "tokenizer", fmt::format("{}: {} is wrong", path.string(), content), {.expected = "an id"});
    if (!known.contains(content)) added.push_back({content, id.get<int64_t>(), false, false});
  }
}

}  // namespace lockstep
