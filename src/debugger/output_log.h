// What the program prints. It writes to the file itself; we read behind it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"

namespace lockstep {

// Follows a file that grows, line by line. A very long line comes in pieces.
class OutputTail {
 public:
  explicit OutputTail(fs::path file) : file_(std::move(file)) {}
  ~OutputTail();
  OutputTail(const OutputTail&) = delete;
  OutputTail& operator=(const OutputTail&) = delete;

  int watch_descriptor();  // readable when the file may have grown; -1: nothing tells, look now and then
  // `last`: nobody writes any more, so that an unfinished line is a line.
  void read(bool last, const std::function<void(const std::string& line)>& use);

 private:
  void open();
  fs::path file_;
  int fd_ = -1, notify_ = -1;
  bool notify_tried_ = false;
  std::string partial_;
};

struct OutputPart {
  std::vector<std::string> lines;
  int64_t first = 1;  // number of the first one, from 1
  int64_t total = 0;  // lines in the file
};

// Lines from number `from` on, at most `most`; from 0: the last `most`. Lines are cut at 4,000 bytes.
OutputPart read_output(const fs::path& file, int64_t from, int64_t most);

}  // namespace lockstep
