#include "zoom/source_lines.h"

#include <algorithm>

#include "base/error.h"
#include "base/escape.h"
#include "base/file.h"

namespace lockstep::zoom {
namespace {

constexpr uint64_t kMostSource = 8 << 20;
constexpr size_t kMostCode = 160, kMostAround = 40;
constexpr int kAround = 2;

}  // namespace

std::string printable(std::string_view text, size_t most) {
  std::string line(text.substr(0, most));
  std::replace(line.begin(), line.end(), '\t', ' ');
  return escaped(line);
}

std::string Sources::line(const Place& place) {
  const std::vector<std::string>& lines = of(place.file);
  if (place.line < 1 || static_cast<size_t>(place.line) > lines.size()) return "";
  const std::string& text = lines[static_cast<size_t>(place.line - 1)];
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : printable(std::string_view(text).substr(begin), kMostCode);
}

size_t Sources::indentation(const Place& place) {
  const std::vector<std::string>& lines = of(place.file);
  if (place.line < 1 || static_cast<size_t>(place.line) > lines.size()) return 0;
  const std::string& text = lines[static_cast<size_t>(place.line - 1)];
  return std::min(text.find_first_not_of(" \t"), text.size());
}

std::vector<SourceLine> Sources::around(const std::vector<Place>& places) {
  std::map<std::string, std::map<int, bool>> wanted;  // file → line → named
  for (const Place& place : places) {
    const auto count = static_cast<int>(of(place.file).size());
    wanted[place.file][place.line] = true;
    for (int line = std::max(1, place.line - kAround); line <= std::min(count, place.line + kAround); ++line)
      wanted[place.file].try_emplace(line, false);
  }
  std::vector<SourceLine> out;
  for (const auto& [file, lines] : wanted)
    for (const auto& [line, named] : lines) {
      if (out.size() >= kMostAround) return out;
      const std::vector<std::string>& text = of(file);
      const bool known = line >= 1 && static_cast<size_t>(line) <= text.size();
      out.push_back({fs::path(printable(file, 4096)).filename().string(), line,
                     known ? printable(text[static_cast<size_t>(line - 1)], kMostCode) : "", named});
    }
  return out;
}

const std::vector<std::string>& Sources::of(const std::string& file) {
  const auto [at, is_new] = files_.try_emplace(file);
  if (!is_new || file.empty() || file.front() == '<') return at->second;
  try {
    const std::string all = read_text(file, kMostSource);
    size_t begin = 0;
    while (begin < all.size()) {
      const size_t end = std::min(all.find('\n', begin), all.size());
      at->second.push_back(all.substr(begin, end - begin));
      begin = end + 1;
    }
  } catch (const Error&) {
    // A source that is gone since: its place is still worth saying.
  }
  return at->second;
}

}  // namespace lockstep::zoom
