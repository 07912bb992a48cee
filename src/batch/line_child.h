// A child process that is spoken to in lines: our end of its stdin and stdout. What it says on stderr goes to a file.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "debugger/child_process.h"

namespace lockstep {

class LineChild {
 public:
  LineChild(const std::vector<std::string>& argv, const fs::path& log);
  ~LineChild();
  LineChild(const LineChild&) = delete;
  LineChild& operator=(const LineChild&) = delete;

  int descriptor() const { return from_; }          // readable: lines, or the end
  bool send(std::string_view line);                 // false: it has ended
  void send_no_more();                              // it sees the end of its stdin
  bool read_some(std::vector<std::string>& lines);  // false: it has ended, and everything it said was read
  std::string how_it_ended();                       // once read_some() said so

 private:
  std::unique_ptr<ChildProcess> process_;
  int to_ = -1, from_ = -1;
  std::string rest_;
};

}  // namespace lockstep
