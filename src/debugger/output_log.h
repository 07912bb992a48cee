// What the program prints. It writes to the file itself; we read behind it.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/platform/file_watch.h"
#include "debugger/bounded_line.h"

namespace lockstep {

inline constexpr size_t kMostLineHead = 3000, kMostLineTail = 1000;  // of a printed line, as it is shown

// Follows a file that grows, line by line, from line number `skip` + 1 on.
class OutputTail {
 public:
  explicit OutputTail(fs::path file, int64_t skip = 0) : file_(std::move(file)), skip_(skip) {}
  ~OutputTail();
  OutputTail(const OutputTail&) = delete;
  OutputTail& operator=(const OutputTail&) = delete;

  int watch_descriptor();  // readable when the file may have grown; -1: nothing tells, look now and then
  // `last`: nobody writes any more, so that an unfinished line is a line.
  void read(bool last, const std::function<void(const std::string& line)>& use);

 private:
  void open();
  fs::path file_;
  int fd_ = -1;
  std::unique_ptr<FileWatch> watch_;
  int64_t skip_;
  BoundedLine line_{kMostLineHead, kMostLineTail};
};

struct OutputPart {
  std::vector<std::string> lines;
  int64_t first = 1;       // number of the first one, from 1
  int64_t total = 0;       // lines in the file
  std::string unfinished;  // what stands after the last line's end
};

// Lines from number `from` on, at most `most`; from 0: the last `most`. Of a line longer than 4,000 bytes the beginning
// and the end are kept.
OutputPart read_output(const fs::path& file, int64_t from, int64_t most);

std::string last_output(const fs::path& file, int64_t most);  // for a message: the last lines, each on one of its own

}  // namespace lockstep
