#include "cli/table.h"

#include <algorithm>

namespace lockstep {
namespace {

// The byte at which the first `columns` characters end.
size_t byte_after(const std::string& text, int columns) {
  size_t at = 0;
  while (at < text.size()) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80 && columns-- == 0) break;
    ++at;
  }
  return at;
}

}  // namespace

Text shortened(const Text& whole, int columns) {
  const std::string& text = whole.string();
  const int width = display_width(text);
  if (width <= columns || columns < 3) return whole;
  const int head = (columns - 1) / 2, tail = columns - 1 - head;
  return Text::trusted(text.substr(0, byte_after(text, head)) + "…" + text.substr(byte_after(text, width - tail)));
}

void Table::add(std::vector<Cell> row) {
  row.resize(columns_.size(), Cell(""));
  rows_.push_back(std::move(row));
}

Text Table::text(const Terminal& terminal) const {
  std::vector<int> widths;
  for (const Column& column : columns_) widths.push_back(display_width(column.title.string()));
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i].text.string()));
  int total = -2;
  for (const int width : widths) total += width + 2;
  // Only on a terminal: a name in a file or a pipe is never cut.
  for (size_t i = 0; i < columns_.size() && terminal.interactive() && total > terminal.width(); ++i) {
    if (!columns_[i].may_shrink) continue;
    const int smaller = std::max(20, widths[i] - (total - terminal.width()));
    if (smaller < widths[i]) {
      total -= widths[i] - smaller;
      widths[i] = smaller;
    }
  }
  Text out;
  const auto put = [&](size_t i, const Text& text, Style style) {
    const Text shown = shortened(text, widths[i]);
    const int missing = widths[i] - std::min(widths[i], display_width(shown.string()));
    const Text pad = Text::trusted(std::string(static_cast<size_t>(missing), ' '));
    const bool last = i + 1 == columns_.size();
    if (columns_[i].align == Align::kRight)
      out += pad + terminal.styled(shown, style);
    else
      out += terminal.styled(shown, style) + (last ? Text() : pad);
    out += last ? Text("\n") : Text("  ");
  };
  for (size_t i = 0; i < columns_.size(); ++i) put(i, columns_[i].title, Style::kDim);
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) put(i, row[i].text, row[i].style);
  return out;
}

}  // namespace lockstep
