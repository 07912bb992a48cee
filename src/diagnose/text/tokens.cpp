#include "diagnose/text/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace lockstep {
namespace {

constexpr int64_t kMostIds = 1 << 20;
constexpr size_t kShownText = 60;

std::vector<Ids> rows_of(const Values& x) {
  std::vector<Ids> out;
  const int64_t width = x.last();
  for (int64_t i = 0; i < x.rows(); ++i) {
    Ids row(static_cast<size_t>(width));
    for (size_t k = 0; k < row.size(); ++k) {
      const float id = x.row(i)[k];  // the other run may have recorded anything there
      row[k] = std::fabs(id) < 0x1p31f ? static_cast<int32_t>(id) : -1;
    }
    out.push_back(std::move(row));
  }
  return out;
}

bool is_mask(const std::vector<Ids>& rows) {
  return std::all_of(rows.begin(), rows.end(), [](const Ids& row) {
    return std::all_of(row.begin(), row.end(), [](int32_t id) { return id == 0 || id == 1; });
  });
}

// What a shorter prompt of the batch is filled up with: the id that rows end or begin with most often.
int32_t padding_of(const std::vector<Ids>& rows) {
  for (const Ids& row : rows)
    if (row.size() > 1 && row.back() == row[row.size() - 2]) return row.back();
  for (const Ids& row : rows)
    if (row.size() > 1 && row[0] == row[1]) return row[0];
  return -1;
}

Ids without(Ids row, int32_t padding) {
  std::erase(row, padding);
  return row;
}

std::string text_of(const Case& failing, const Ids& ids) {
  if (!failing.text_of_tokens || ids.empty()) return "";
  return failing.text_of_tokens(ids);
}

// Tokens may cut a character apart: what is left of it is shown as a question mark.
std::string shown(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size() && out.size() < kShownText;) {
    const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
    const size_t length = byte(i) < 0x80       ? 1
                          : byte(i) >> 5 == 6  ? 2
                          : byte(i) >> 4 == 14 ? 3
                          : byte(i) >> 3 == 30 ? 4
                                               : 0;
    bool whole = length > 0;
    for (size_t k = 1; k < length; ++k) whole = whole && byte(i + k) >> 6 == 2;
    out += !whole ? "?" : text[i] == '\n' ? " " : text.substr(i, length);
    i += whole ? length : 1;
  }
  return "\"" + out + (out.size() < text.size() && out.size() >= kShownText ? "..." : "") + "\"";
}

std::string folded(const std::string& text) {
  std::string out;
  for (const char c : text) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string without_spaces(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (!std::isspace(static_cast<unsigned char>(c))) out += c;
  return out;
}

// The part in which two rows differ: [begin, end) of each.
struct Span {
  size_t begin = 0, end_r = 0, end_c = 0;
};

Span differing(const Ids& r, const Ids& c) {
  Span out{0, r.size(), c.size()};
  while (out.begin < std::min(r.size(), c.size()) && r[out.begin] == c[out.begin]) ++out.begin;
  while (out.end_r > out.begin && out.end_c > out.begin && r[out.end_r - 1] == c[out.end_c - 1])
    --out.end_r, --out.end_c;
  return out;
}

std::string ids_words(const Ids& ids) {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(ids.size(), 6); ++i) out += fmt::format("{}{}", i ? ", " : "", ids[i]);
  return out + (ids.size() > 6 ? ", ..." : "");
}

std::string what_happened(const Case& failing, const Ids& r, const Ids& c, const Ids& part_r, const Ids& part_c) {
  if (part_c.empty())
    return r.size() > c.size() + 8 && part_r.size() * 3 > r.size() ? "the template, or most of the text, is missing"
                                                                   : "these tokens are missing";
  if (part_r.empty()) return "these tokens are added";
  const std::string a = text_of(failing, r), b = text_of(failing, c);
  if (a.empty() || b.empty()) return "the text was changed before it was cut into tokens, or cut by other rules";
  if (a == b) return "the same text, cut into tokens by other rules (special tokens, merges, spaces)";
  if (folded(a) == b) return "the text was put into lower case";
  if (folded(a) == folded(b)) return "upper and lower case differ";
  if (without_spaces(a) == without_spaces(b)) return "spaces or line ends differ";
  return "another text";
}

std::string mask_words(const std::vector<Ids>& r, const std::vector<Ids>& c) {
  for (size_t i = 0; i < r.size(); ++i) {
    if (r[i] == c[i]) continue;
    const auto ones = [](const Ids& row) { return std::count(row.begin(), row.end(), 1); };
    const std::string counts =
        fmt::format("reference: {} of {} tokens of prompt {} count; yours: {}", ones(r[i]), r[i].size(), i, ones(c[i]));
    if (ones(c[i]) == static_cast<std::ptrdiff_t>(c[i].size())) return counts + ", padding is not hidden";
    if (ones(r[i]) == ones(c[i])) return counts + ", but others: the padding is on the other side";
    if (ones(r[i]) + ones(c[i]) == static_cast<std::ptrdiff_t>(r[i].size())) return counts + ", the mask is inverted";
    return counts;
  }
  return "";
}

}  // namespace

std::string token_difference(const Case& failing, const std::vector<Ids>& r, const std::vector<Ids>& c) {
  if (r.size() != c.size()) return fmt::format("reference: {} prompts; yours: {}", r.size(), c.size());
  if (is_mask(r) && is_mask(c)) return mask_words(r, c);
  const int32_t padding = r.size() > 1 ? padding_of(r) : -1;
  for (size_t i = 0; i < r.size(); ++i) {
    if (r[i] == c[i]) continue;
    if (padding >= 0 && without(r[i], padding) == without(c[i], padding))
      return fmt::format("prompt {}: the same tokens, padded (id {}) on the other side or to another length", i,
                         padding);
    const Span span = differing(r[i], c[i]);
    const auto part = [](const Ids& row, size_t begin, size_t end) {
      return Ids(row.begin() + static_cast<std::ptrdiff_t>(begin), row.begin() + static_cast<std::ptrdiff_t>(end));
    };
    const Ids part_r = part(r[i], span.begin, span.end_r), part_c = part(c[i], span.begin, span.end_c);
    std::string out = fmt::format("reference: tokens {} on are {}", span.begin, ids_words(part_r));
    if (const std::string text = text_of(failing, part_r); !text.empty()) out += " " + shown(text);
    out += fmt::format("; yours: {}", part_c.empty() ? "nothing" : ids_words(part_c));
    if (const std::string text = text_of(failing, part_c); !text.empty()) out += " " + shown(text);
    return out + "; " + what_happened(failing, r[i], c[i], part_r, part_c);
  }
  return "";
}

Finding other_input(std::string words, double complexity) {
  return {.cause = "input.other",
          .explanation = std::move(words),
          .fix = "give both sides the same text, template and padding",
          .complexity = complexity};
}

void search_tokens(Case& failing, Findings& out) {
  if (is_floating(failing.reference_run().records[failing.reference_record()].dtype)) return;
  const Shape &r = failing.r.shape, &c = failing.c.shape;
  if (failing.only_local || r.empty() || c.empty() || r.size() > 2 || c.size() > 2 || failing.r.size() > kMostIds ||
      failing.c.size() > kMostIds)
    return;
  std::string words = token_difference(failing, rows_of(failing.r), rows_of(failing.c));
  if (!words.empty()) out.push_back(other_input(std::move(words), 1.4));
}

}  // namespace lockstep
