#include "measure/axis_words.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

bool is_picture(std::string_view name, const Shape& shape) {
  if (name.starts_with("vae") || name.starts_with("latents") || name.find("conv") != std::string_view::npos)
    return true;
  return name.starts_with("image") && shape.size() >= 3;
}

bool is_attention(std::string_view name) {
  for (const std::string_view part : {"attn", "attention", "head", "rope", "rotary", "score", "softmax"})
    if (name.find(part) != std::string_view::npos) return true;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find_first_of("._/", begin), name.size());
    for (const std::string_view word : {"q", "k", "v", "query", "key", "value", "queries", "keys", "values"})
      if (name.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

std::vector<std::string> numbered_axes(size_t rank) {
  std::vector<std::string> out;
  for (size_t axis = 0; axis < rank; ++axis) out.push_back(fmt::format("index of axis {}", axis));
  return out;
}

// Pictures with channels first or last, or heads before or behind the tokens: the name says, else sizes that leave no
// doubt, else nobody does.
std::vector<std::string> four_axis_words(std::string_view name, const Shape& shape) {
  const std::vector<std::string> first{"batch item", "channel", "row", "column"},
      last{"batch item", "row", "column", "channel"};
  const bool square_last = shape[1] == shape[2] && shape[2] != shape[3],
             square_first = shape[2] == shape[3] && shape[1] != shape[2];
  if (is_picture(name, shape)) return square_last ? last : first;
  if (!is_attention(name)) return square_first ? first : square_last ? last : numbered_axes(4);
  if (square_first && shape[1] < shape[2]) return {"batch item", "head", "query", "key"};
  if (shape[1] < shape[2]) return {"batch item", "head", "token", "channel"};
  return {"batch item", "token", "head", "channel"};
}

}  // namespace

std::vector<std::string> axis_words(std::string_view name, const Shape& shape) {
  const size_t rank = shape.size();
  const bool channels_last = rank >= 1 && shape.back() <= 4 && name.starts_with("image");
  switch (rank) {
    case 0:
      return {};
    case 1:
      return {"element"};
    case 2:
      return {shape[0] > 1 ? "row" : "batch item", "channel"};
    case 3:
      if (is_picture(name, shape) && !name.starts_with("latents"))
        return channels_last ? std::vector<std::string>{"row", "column", "channel"}
                             : std::vector<std::string>{"channel", "row", "column"};
      return {"batch item", "token", "channel"};
    case 4:
      if (channels_last) return {"batch item", "row", "column", "channel"};
      return four_axis_words(name, shape);
    case 5:
      return {"batch item", "channel", "frame", "row", "column"};
    default:
      return numbered_axes(rank);
  }
}

std::string plural(std::string_view word) {
  if (word.starts_with("index")) return "indices" + std::string(word.substr(5));
  return std::string(word) + "s";
}

std::string index_set_words(const std::string& word, const std::vector<bool>& marked) {
  constexpr std::string_view kNumbered = "index of";
  if (word.starts_with(kNumbered)) {  // "only index 2 of axis 1"
    const std::string set = index_set_words("index", marked);
    return set.empty() ? set : set + word.substr(5);
  }
  const size_t n = marked.size();
  const size_t count = static_cast<size_t>(std::count(marked.begin(), marked.end(), true));
  size_t first = 0, last = n - 1;
  while (first < n && !marked[first]) ++first;
  while (last > first && !marked[last]) --last;
  if (count == 0 || count == n) return "";
  if (count == 1) return fmt::format("only {} {}", word, first);
  if (last - first + 1 == count) {
    if (last == n - 1) return fmt::format("only {} {} and later", plural(word), first);
    if (first == 0) return fmt::format("only the first {} {}", count, plural(word));
    return fmt::format("only {} {} to {}", plural(word), first, last);
  }
  if (count == 2 && first == 0 && last == n - 1) return fmt::format("only the first and the last {}", word);
  for (const size_t stride : {2u, 3u, 4u, 8u}) {
    if (n < 2 * stride) continue;
    bool regular = true;
    for (size_t i = 0; i < n && regular; ++i) regular = marked[i] == (i % stride == first % stride);
    if (regular && stride == 2) return fmt::format("every {} {}", first % 2 ? "odd" : "even", word);
    if (regular) return fmt::format("every {}{} {} from {}", stride, stride == 3 ? "rd" : "th", word, first);
  }
  for (size_t parts = 2; parts <= 8; ++parts) {  // equal parts, wholly marked or wholly free
    if (n % parts) continue;
    std::string named;
    bool whole = true;
    const size_t size = n / parts;
    for (size_t part = 0; part < parts && whole; ++part) {
      for (size_t i = 1; i < size && whole; ++i) whole = marked[part * size + i] == marked[part * size];
      if (whole && marked[part * size]) named += (named.empty() ? "" : ", ") + std::to_string(part + 1);
    }
    if (whole && size > 1) return fmt::format("only parts {} of {} of the {}", named, parts, plural(word));
  }
  return count * 4 <= n * 3 ? fmt::format("{} of {} {} (from {} to {})", count, n, plural(word), first, last) : "";
}

}  // namespace lockstep
