// One function in a coverage file: [file, "name", line, calls, runs with its module, [lines that ran], [all lines]].
// A program that imports torch has a hundred thousand of them, so they are read without building a tree.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct CoverageRow {
  int64_t file = 0, line = 0, calls = 0;
  std::string name{};
  bool with_module = false;
  std::vector<int64_t> lines_run{}, lines{};
};

std::optional<CoverageRow> coverage_row(std::string_view text);  // nothing where it is no such row

// Both in one, in order and each once.
void join_lines(std::vector<int64_t>& into, std::vector<int64_t> more);

}  // namespace lockstep
