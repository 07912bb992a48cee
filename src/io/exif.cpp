#include "io/exif.h"

#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/json.h"

namespace lockstep {
namespace {

constexpr std::string_view kPrefix("Exif\0\0", 6), kAscii("ASCII\0\0\0", 8);
constexpr uint32_t kOrientation = 0x0112, kSoftware = 0x0131, kDescription = 0x010E, kExifFolder = 0x8769,
                   kUserComment = 0x9286;
constexpr uint32_t kTypeAscii = 2, kTypeShort = 3, kTypeLong = 4, kTypeUndefined = 7;
constexpr size_t kEntryBytes = 12;
constexpr size_t kMaxCommentBytes = 1 << 20;

bool begins_with(std::span<const std::byte> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

// A TIFF structure: directories of 12-byte entries (tag, type, count, value or its offset). Every look-up is bounded
// and a damaged structure reads as an empty one.
class Tiff {
 public:
  explicit Tiff(std::span<const std::byte> bytes) : bytes_(bytes) {
    if (bytes_.size() < 8) return;
    little_ = bytes_[0] == std::byte{'I'} && bytes_[1] == std::byte{'I'};
    const bool big = bytes_[0] == std::byte{'M'} && bytes_[1] == std::byte{'M'};
    valid_ = (little_ || big) && read(2, 2) == 42;
  }

  struct Entry {
    uint32_t type = 0, count = 0;
    size_t value_at = 0;  // of the four bytes that hold the value or its offset
  };

  size_t first_directory() const { return valid_ ? read(4, 4) : bytes_.size(); }

  std::optional<Entry> find(size_t directory, uint32_t tag) const {
    if (!valid_ || directory > bytes_.size() - 2) return {};
    const size_t entries = read(directory, 2);
    for (size_t i = 0; i < entries; ++i) {
      const size_t at = directory + 2 + i * kEntryBytes;
      if (at + kEntryBytes > bytes_.size()) return {};
      if (read(at, 2) == tag) return Entry{read(at + 2, 2), read(at + 4, 4), at + 8};
    }
    return {};
  }

  uint32_t read(size_t at, size_t count) const {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i)
      value |= static_cast<uint32_t>(bytes_[at + i]) << (8 * (little_ ? i : count - 1 - i));
    return value;
  }

  // The bytes an entry of more than four bytes points at; empty when they leave the block.
  std::span<const std::byte> bytes_of(const Entry& entry) const {
    const size_t at = read(entry.value_at, 4);
    if (at > bytes_.size() || entry.count > bytes_.size() - at) return {};
    return bytes_.subspan(at, entry.count);
  }

 private:
  std::span<const std::byte> bytes_;
  bool little_ = false, valid_ = false;
};

Tiff tiff_of(std::span<const std::byte> exif) {
  return Tiff(begins_with(exif, kPrefix) ? exif.subspan(kPrefix.size()) : exif);
}

void put(std::string& out, uint32_t value, size_t count) {
  for (size_t i = 0; i < count; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
}

void put_entry(std::string& out, uint32_t tag, uint32_t type, size_t count, size_t value) {
  put(out, tag, 2);
  put(out, type, 2);
  put(out, static_cast<uint32_t>(count), 4);
  put(out, static_cast<uint32_t>(value), 4);
}

std::string ascii_json(const std::map<std::string, std::string>& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace

int exif_orientation(std::span<const std::byte> exif) {
  const Tiff tiff = tiff_of(exif);
  const auto entry = tiff.find(tiff.first_directory(), kOrientation);
  if (!entry || entry->type != kTypeShort) return 1;
  const uint32_t value = tiff.read(entry->value_at, 2);
  return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
}

std::map<std::string, std::string> exif_text(std::span<const std::byte> exif) {
  const Tiff tiff = tiff_of(exif);
  const auto folder = tiff.find(tiff.first_directory(), kExifFolder);
  if (!folder || folder->type != kTypeLong) return {};
  const auto comment = tiff.find(tiff.read(folder->value_at, 4), kUserComment);
  if (!comment || comment->count > kMaxCommentBytes) return {};
  std::span<const std::byte> bytes = tiff.bytes_of(*comment);
  if (!begins_with(bytes, kAscii)) return {};
  bytes = bytes.subspan(kAscii.size());
  std::map<std::string, std::string> text;
  try {
    const Json json =
        parse_json(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "the picture's comment");
    if (!json.is_object()) return {};
    for (const auto& [key, value] : json.items())
      if (value.is_string()) text[key] = value.get<std::string>();
  } catch (const Error&) {
    return {};  // somebody else's comment
  }
  return text;
}

std::string exif_with_text(const std::map<std::string, std::string>& text, size_t most_bytes) {
  std::map<std::string, std::string> kept = text;
  std::string json = ascii_json(kept);
  const auto value = [&kept](const char* key) {
    const auto at = kept.find(key);
    return at == kept.end() ? std::string() : at->second;
  };
  // The longest value gives way, which is the prompt: a JPEG segment ends at 64 KB.
  const auto size = [&] { return 64 + json.size() + value("prompt").size() + value("software").size(); };
  while (size() > most_bytes) {
    auto longest = kept.begin();
    for (auto at = kept.begin(); at != kept.end(); ++at)
      if (at->second.size() > longest->second.size()) longest = at;
    if (longest == kept.end() || longest->second.empty()) return {};
    std::string& cut = longest->second;
    size_t end = cut.size() / 2;
    while (end > 0 && (static_cast<unsigned char>(cut[end]) & 0xC0) == 0x80) --end;  // not within a character
    cut.resize(end);
    json = ascii_json(kept);
  }
  const std::string description = value("prompt") + '\0', software = value("software") + '\0';
  const std::string comment = std::string(kAscii) + json;
  // Header, directory of three entries, directory of one, then the values. Two extra bytes keep short strings, which
  // an entry would hold in itself, out of the way: every value here is padded to more than four bytes.
  constexpr size_t kHeader = 8, kMain = 2 + 3 * kEntryBytes + 4, kSub = 2 + 1 * kEntryBytes + 4;
  const auto padded = [](std::string s) {
    s.resize(std::max<size_t>(s.size() + (s.size() & 1), 6), '\0');
    return s;
  };
  const std::string first = padded(description), second = padded(software);
  const size_t first_at = kHeader + kMain + kSub, second_at = first_at + first.size(),
               comment_at = second_at + second.size();
  std::string out = "II*";
  out.push_back('\0');
  put(out, kHeader, 4);
  put(out, 3, 2);  // entries in ascending order of tags
  put_entry(out, kDescription, kTypeAscii, first.size(), first_at);
  put_entry(out, kSoftware, kTypeAscii, second.size(), second_at);
  put_entry(out, kExifFolder, kTypeLong, 1, kHeader + kMain);
  put(out, 0, 4);
  put(out, 1, 2);
  put_entry(out, kUserComment, kTypeUndefined, comment.size(), comment_at);
  put(out, 0, 4);
  return out + first + second + comment;
}

}  // namespace lockstep
