// Lines of any length in bounded memory: a program may print a gigabyte without a line's end.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/file.h"

namespace lockstep {

// Of a long line the beginning and the end are kept: the end is where a progress bar stands.
class BoundedLine {
 public:
  BoundedLine(size_t head_bytes, size_t tail_bytes) : most_head_(head_bytes), most_tail_(tail_bytes) {}

  void append(std::string_view piece);
  bool empty() const { return bytes_ == 0; }
  bool whole() const { return bytes_ == head_.size() + tail_.size(); }
  std::string text() const;  // with a note between the two parts where something is left out
  void clear();

 private:
  size_t most_head_, most_tail_;
  std::string head_, tail_;
  uint64_t bytes_ = 0;
};

// Adds to `line` and hands each finished one to `use`, which finds it in `line`.
template <typename Use>
void each_finished_line(BoundedLine& line, std::string_view data, Use use) {
  for (size_t end; (end = data.find('\n')) != std::string_view::npos; data.remove_prefix(end + 1)) {
    line.append(data.substr(0, end));
    use();
    line.clear();
  }
  line.append(data);
}

// The lines of a file; what follows the last line's end stays in `line`. False: the file cannot be read.
bool read_lines(const fs::path& file, BoundedLine& line, const std::function<void()>& use);

}  // namespace lockstep
