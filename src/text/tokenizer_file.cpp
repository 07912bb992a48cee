#include "text/tokenizer_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <new>
#include <optional>

#include "base/error.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_config.h"

namespace lockstep {
namespace {

namespace dom = simdjson::dom;
constexpr std::string_view kOperation = "tokenizer";
constexpr size_t kMaxDepth = 32;

// A value of a document with the words that name it in a message.
class Field {
 public:
  Field(dom::element element, std::string_view origin, std::string path)
      : element_(element), origin_(origin), path_(std::move(path)) {}

  bool is_null() const { return element_.is_null(); }
  bool is_string() const { return element_.is_string(); }
  bool is_array() const { return element_.is_array(); }
  dom::object object() const { return as<dom::object>("an object"); }
  dom::array array() const { return as<dom::array>("an array"); }
  std::string_view string() const { return as<std::string_view>("a string"); }
  int64_t integer() const { return as<int64_t>("an integer"); }
  bool boolean() const { return as<bool>("true or false"); }
  std::string text() const { return simdjson::minify(element_).substr(0, 200); }

  Field wrap(dom::element element, std::string_view key) const {
    return {element, origin_, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key)};
  }
  std::optional<Field> find(std::string_view key) const {
    dom::element found;
    if (object().at_key(key).get(found) != simdjson::SUCCESS || found.is_null()) return std::nullopt;
    return wrap(found, key);
  }
  Field need(std::string_view key) const {
    const auto found = find(key);
    if (!found) corrupt(fmt::format("\"{}\"", key), "nothing");
    return *found;
  }
  bool flag(std::string_view key) const {
    const auto found = find(key);
    return found && found->boolean();
  }

  [[noreturn]] void corrupt(std::string_view expected, std::string_view got) const {
    fail(Code::kCorrupt, kOperation, fmt::format("{}: {} is wrong", origin_, path_.empty() ? "the document" : path_),
         {.expected = std::string(expected), .got = std::string(got)});
  }
  [[noreturn]] void unsupported(std::string_view expected) const {
    fail(Code::kUnsupported, kOperation, fmt::format("{}: {} is not supported", origin_, path_),
         {.expected = std::string(expected), .got = text()});
  }

 private:
  template <typename T>
  T as(std::string_view expected) const {
    T value;
    if (element_.get<T>().get(value) != simdjson::SUCCESS) corrupt(expected, text());
    return value;
  }

  dom::element element_;
  std::string_view origin_;
  std::string path_;
};

class Document {
 public:
  Document(std::string_view json, std::string_view origin) : origin_(origin) {
    if (json.size() > kMaxTokenizerBytes)
      fail(Code::kCorrupt, kOperation, fmt::format("{} is too large", origin),
           {.expected = fmt::format("at most {} bytes", kMaxTokenizerBytes), .got = std::to_string(json.size())});
    if (json.empty())
      fail(Code::kCorrupt, kOperation,
           fmt::format("{} is not valid JSON: Empty: no JSON found", origin));  // simdjson would copy from null
    simdjson::error_code error = parser_.allocate(json.size() + 1, kMaxDepth);
    if (error == simdjson::SUCCESS) error = parser_.parse(json.data(), json.size(), true).get(root_);
    if (error == simdjson::MEMALLOC) throw std::bad_alloc();
    if (error != simdjson::SUCCESS)
      fail(Code::kCorrupt, kOperation, fmt::format("{} is not valid JSON: {}", origin, simdjson::error_message(error)));
  }
  Field root() const { return {root_, origin_, ""}; }

 private:
  std::string_view origin_;
  dom::parser parser_;
  dom::element root_;
};

Vocabulary parse_vocabulary(const Field& field) {
  const dom::object tokens = field.object();
  Vocabulary vocabulary(tokens.size(), 16 * tokens.size());
  for (const auto [token, id] : tokens) {
    int64_t value;
    if (id.get(value) != simdjson::SUCCESS) field.wrap(id, token).corrupt("an id", simdjson::minify(id).substr(0, 60));
    vocabulary.add(token, value);
  }
  return vocabulary;
}

// Adds merges in order of rank.
class MergeReader {
 public:
  MergeReader(const Vocabulary& vocabulary, Merges& merges, std::string_view origin)
      : vocabulary_(vocabulary), merges_(merges), origin_(origin) {}

  void add_line(std::string_view line) {  // "a b"
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      fail(Code::kCorrupt, kOperation, fmt::format("{}: merge {} is wrong", origin_, rank_),
           {.expected = "two tokens with a space between", .got = fmt::format("\"{}\"", line.substr(0, 60))});
    add(line.substr(0, space), line.substr(space + 1));
  }
  void add(std::string_view left, std::string_view right) {
    merged_.assign(left).append(right);
    // Trained vocabularies number their tokens in order of rank: the next id is nearly always the one.
    const bool guessed = vocabulary_.contains(next_id_) && vocabulary_.token(next_id_) == merged_;
    const int32_t left_id = id_of(left), right_id = id_of(right), merged_id = guessed ? next_id_ : id_of(merged_);
    merges_.add(left_id, right_id, {rank_++, merged_id});
    next_id_ = merged_id + 1;
  }

 private:
  int32_t id_of(std::string_view token) const {
    const auto id = vocabulary_.find(token);
    if (!id)
      fail(Code::kCorrupt, kOperation,
           fmt::format("{}: merge {} needs \"{}\", which is not in the vocabulary", origin_, rank_,
                       token.substr(0, 60)));
    return *id;
  }

  const Vocabulary& vocabulary_;
  Merges& merges_;
  std::string_view origin_;
  uint32_t rank_ = 0;
  int32_t next_id_ = 0;
  std::string merged_;
};

Merges parse_merges(const Field& field, const Vocabulary& vocabulary, std::string_view origin) {
  const dom::array entries = field.array();
  // The size a simdjson array reports saturates; a table that turns out too small would never end a search.
  size_t count = 0;
  for ([[maybe_unused]] const dom::element entry : entries) ++count;
  Merges merges(count);
  MergeReader reader(vocabulary, merges, origin);
  for (const dom::element entry : entries) {
    std::string_view line;
    if (entry.get(line) == simdjson::SUCCESS) {
      reader.add_line(line);
      continue;
    }
    dom::array pair;
    std::string_view left, right;
    if (entry.get(pair) != simdjson::SUCCESS || pair.size() != 2 || pair.at(0).get(left) != simdjson::SUCCESS ||
        pair.at(1).get(right) != simdjson::SUCCESS)
      field.corrupt("entries \"a b\" or [\"a\", \"b\"]", simdjson::minify(entry).substr(0, 60));
    reader.add(left, right);
  }
  return merges;
}

AddedToken parse_added(const Field& field, int64_t id) {
  for (const char* key : {"lstrip", "rstrip", "single_word"})
    if (field.flag(key)) field.need(key).unsupported("false");
  AddedToken token;
  token.content = field.need("content").string();
  token.id = id;
  token.special = field.flag("special");
  token.normalized = field.find("normalized") ? field.flag("normalized") : !token.special;
  return token;
}

bool is_type(const Field& field, std::string_view type) {
  return field.need("type").string() == type;
}

// transformers 5 writes a TemplateProcessing whose template is the sequence alone.
bool adds_nothing(const Field& post) {
  if (!is_type(post, "TemplateProcessing")) return false;
  size_t pieces = 0;
  for (const dom::element piece : post.need("single").array())
    if (++pieces > 1 || !post.wrap(piece, "single").find("Sequence")) return false;
  return pieces == 1;
}

// The members of a Sequence, or the thing itself.
std::vector<Field> flatten(const Field& field, std::string_view list_key) {
  if (!is_type(field, "Sequence")) return {field};
  std::vector<Field> members;
  int index = 0;
  const Field list = field.need(list_key);
  for (const dom::element member : list.array()) members.push_back(list.wrap(member, std::to_string(index++)));
  return members;
}

bool parse_normalizer(const Field& root) {
  const auto field = root.find("normalizer");
  if (!field) return false;
  bool nfc = false;
  for (const Field& member : flatten(*field, "normalizers")) {
    if (!is_type(member, "NFC")) member.unsupported("NFC");
    nfc = true;
  }
  return nfc;
}

void check_byte_level(const Field& field) {
  if (!is_type(field, "ByteLevel")) field.unsupported("ByteLevel");
  for (const char* key : {"add_prefix_space", "use_regex"}) {
    const auto value = field.find(key);
    if (!value || value->boolean()) field.unsupported(fmt::format("\"{}\": false", key));
  }
}

void check_pre_tokenizer(const Field& root) {
  const Field field = root.need("pre_tokenizer");
  const std::vector<Field> members = flatten(field, "pretokenizers");
  if (members.size() != 2) field.unsupported("Split, then ByteLevel");
  const Field& split = members[0];
  if (!is_type(split, "Split")) split.unsupported("Split");
  const auto pattern = split.need("pattern").find("Regex");
  if (!pattern || pattern->string() != kQwen2Pattern) split.need("pattern").unsupported(kQwen2Pattern);
  if (split.need("behavior").string() != "Isolated") split.need("behavior").unsupported("Isolated");
  if (split.flag("invert")) split.need("invert").unsupported("false");
  check_byte_level(members[1]);
}

void check_model(const Field& model) {
  if (const auto type = model.find("type"); type && type->string() != "BPE") type->unsupported("BPE");
  if (const auto dropout = model.find("dropout"); dropout && dropout->text() != "0.0" && dropout->text() != "0")
    dropout->unsupported("no dropout");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto value = model.find(key); value && !value->string().empty()) value->unsupported("\"\"");
  if (const auto unk = model.find("unk_token")) unk->unsupported("null: bytes need no unknown token");
  if (model.flag("byte_fallback")) model.need("byte_fallback").unsupported("false");
}

std::shared_ptr<const MappedFile> open_bounded(const fs::path& path) {
  auto file = MappedFile::open(path);
  if (file->bytes().size() > kMaxTokenizerBytes)
    fail(
        Code::kCorrupt, kOperation, fmt::format("{} is too large", path.string()),
        {.expected = fmt::format("at most {} bytes", kMaxTokenizerBytes), .got = std::to_string(file->bytes().size())});
  return file;
}

std::string_view view(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

TokenizerFile parse_tokenizer_json(std::string_view json, std::string_view origin) {
  const Document document(json, origin);
  const Field root = document.root(), model = root.need("model");
  check_model(model);
  check_pre_tokenizer(root);
  // Anything else here would add tokens or change bytes. Truncation and padding are the caller's, as in transformers.
  if (const auto post = root.find("post_processor"); post && !is_type(*post, "ByteLevel") && !adds_nothing(*post))
    post->unsupported("ByteLevel, or a template that adds nothing");
  if (const auto decoder = root.find("decoder"); decoder && !is_type(*decoder, "ByteLevel"))
    decoder->unsupported("ByteLevel");

  Vocabulary vocabulary = parse_vocabulary(model.need("vocab"));
  Merges merges = parse_merges(model.need("merges"), vocabulary, origin);
  TokenizerFile file{std::move(vocabulary), std::move(merges), {}, parse_normalizer(root), model.flag("ignore_merges")};
  if (const auto added = root.find("added_tokens")) {
    for (const dom::element entry : added->array()) {
      const Field token = added->wrap(entry, std::to_string(file.added.size()));
      file.added.push_back(parse_added(token, token.need("id").integer()));
    }
  }
  return file;
}

TokenizerFile parse_vocab_and_merges(std::string_view vocab_json, std::string_view merges_text,
                                     std::string_view origin) {
  const Document document(vocab_json, origin);
  Vocabulary vocabulary = parse_vocabulary(document.root());
  Merges merges(static_cast<size_t>(std::count(merges_text.begin(), merges_text.end(), '\n')) + 1);
  MergeReader reader(vocabulary, merges, origin);
  while (!merges_text.empty()) {
    const size_t end = std::min(merges_text.find('\n'), merges_text.size());
    std::string_view line = merges_text.substr(0, end);
    merges_text.remove_prefix(std::min(end + 1, merges_text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) reader.add_line(line);
  }
  return {std::move(vocabulary), std::move(merges), {}, true, false};
}

TokenizerFile read_tokenizer_folder(const fs::path& folder) {
  const fs::path json = folder / "tokenizer.json", vocab = folder / "vocab.json", merges = folder / "merges.txt";
  const fs::path config = folder / "tokenizer_config.json", added = folder / "added_tokens.json";
  if (!fs::exists(json) && !(fs::exists(vocab) && fs::exists(merges)))
    fail(Code::kNotFound, kOperation, fmt::format("{} holds no tokenizer", folder.string()),
         {.expected = "tokenizer.json, or vocab.json and merges.txt",
          .hint = "the folder named \"tokenizer\" of a complete model"});
  TokenizerFile file = [&] {
    if (fs::exists(json)) return parse_tokenizer_json(view(*open_bounded(json)), json.string());
    const auto vocab_file = open_bounded(vocab), merges_file = open_bounded(merges);
    return parse_vocab_and_merges(view(*vocab_file), view(*merges_file), folder.string());
  }();
  if (fs::exists(config)) read_tokenizer_config(config, file.added);
  if (fs::exists(added)) read_added_tokens(added, file.added);
  return file;
}

}  // namespace lockstep
