#include "capture/file_names.h"

#include <charconv>
#include <optional>

#include "capture/checksum.h"

namespace lockstep {
namespace {

constexpr size_t kMaxFileName = 200;  // leaves room for ".npy" and temporary suffixes below the usual 255
constexpr std::string_view kHex = "0123456789ABCDEF";

bool stays(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    // A leading dot would hide the file, and "." and ".." are folders.
    if (stays(c) && !(c == '.' && out.empty())) {
      out += c;
      continue;
    }
    const unsigned char byte = static_cast<unsigned char>(c);
    out += '%';
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
}

std::string bounded(std::string name) {
  if (name.size() <= kMaxFileName) return name;
  const std::string hash = checksum_text(std::as_bytes(std::span(name.data(), name.size())));
  return name.substr(0, kMaxFileName - 1 - hash.size()) + "~" + hash;
}

int hex_digit(char c) {
  const size_t at = kHex.find(c);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

std::optional<int> number_after(std::string_view part, std::string_view word) {
  if (!part.starts_with(word)) return std::nullopt;
  part.remove_prefix(word.size());
  int value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (error != std::errc{} || end != part.data() + part.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::string escape_name(std::string_view name) {
  std::string out;
  append_escaped(out, name);
  return bounded(out.empty() ? "%" : out);  // a lone '%' is what no other name becomes
}

std::string unescape_name(std::string_view file_name) {
  if (file_name == "%") return "";
  std::string out;
  for (size_t i = 0; i < file_name.size(); ++i) {
    const bool escape = file_name[i] == '%' && i + 2 < file_name.size() && hex_digit(file_name[i + 1]) >= 0 &&
                        hex_digit(file_name[i + 2]) >= 0;
    if (!escape) {
      out += file_name[i];
      continue;
    }
    out += static_cast<char>(hex_digit(file_name[i + 1]) * 16 + hex_digit(file_name[i + 2]));
    i += 2;
  }
  return out;
}

std::string tensor_file_stem(const TensorKey& key, Role role) {
  std::string out;
  append_escaped(out, key.name);
  if (out.empty()) out = "%";
  if (key.step >= 0) out += "@step" + std::to_string(key.step);
  for (const auto& [tag, value] : key.tags) {
    std::string part;
    if (tag != "pass") {
      append_escaped(part, tag);
      part += '=';
    } else if (value.starts_with("step") || value.starts_with("hit") || value == "input" || value == "variable") {
      part = "pass=";  // would read as something else
    }
    append_escaped(part, value);
    out += "@" + part;
  }
  if (role == Role::kInput || role == Role::kVariable) out += "@" + std::string(role_name(role));
  if (key.hit > 0) out += "@hit" + std::to_string(key.hit);
  return bounded(out);
}

TensorKey key_from_file_stem(std::string_view stem, Role& role) {
  TensorKey key;
  role = Role::kCheckpoint;
  const size_t first = stem.find('@');
  key.name = unescape_name(stem.substr(0, first));
  while (stem.find('@') != std::string_view::npos) {
    stem.remove_prefix(stem.find('@') + 1);
    const std::string_view part = stem.substr(0, stem.find('@'));
    const size_t equals = part.find('=');
    if (const auto step = number_after(part, "step"))
      key.step = *step;
    else if (const auto hit = number_after(part, "hit"))
      key.hit = *hit;
    else if (part == "input" || part == "variable")
      role = role_from_name(part);
    else if (equals == std::string_view::npos)
      key.tags.emplace_back("pass", unescape_name(part));
    else
      key.tags.emplace_back(unescape_name(part.substr(0, equals)), unescape_name(part.substr(equals + 1)));
  }
  std::sort(key.tags.begin(), key.tags.end());
  return key;
}

}  // namespace lockstep
