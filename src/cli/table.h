// A table of aligned columns. Control characters in cells (file and tensor names can hold anything) are made visible.
#pragma once
#include <string>
#include <vector>

#include "cli/terminal.h"

namespace lockstep {

struct Cell {
  std::string text;
  Style style = Style::kPlain;
  Cell(std::string text_, Style style_ = Style::kPlain) : text(std::move(text_)), style(style_) {}
  Cell(const char* text_) : text(text_) {}
};

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
    bool may_shrink = false;  // cut in the middle where the table is wider than the terminal
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> row);
  std::string text(const Terminal& terminal) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

std::string printable(std::string_view text);                 // control characters as \xNN
std::string shortened(const std::string& text, int columns);  // "transformer_blo…attn.to_q.weight"

}  // namespace lockstep
