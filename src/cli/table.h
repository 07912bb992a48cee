// A table of aligned columns.
#pragma once
#include <string>
#include <vector>

#include "cli/terminal.h"

namespace lockstep {

struct Cell {
  Text text;
  Style style = Style::kPlain;
  // A string is escaped: file and tensor names can hold anything.
  Cell(std::string_view outside, Style style_ = Style::kPlain) : text(Text::from(outside)), style(style_) {}
  Cell(const std::string& outside, Style style_ = Style::kPlain) : text(Text::from(outside)), style(style_) {}
  Cell(const char* outside, Style style_ = Style::kPlain) : text(Text::from(outside)), style(style_) {}
  Cell(Text text_, Style style_ = Style::kPlain) : text(std::move(text_)), style(style_) {}
};

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    Text title;
    Align align = Align::kLeft;
    bool may_shrink = false;  // cut in the middle where the table is wider than the terminal
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> row);
  Text text(const Terminal& terminal) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

Text shortened(const Text& text, int columns);  // "transformer_blo…attn.to_q.weight"

}  // namespace lockstep
