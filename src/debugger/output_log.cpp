#include "debugger/output_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <deque>

namespace lockstep {

OutputTail::~OutputTail() {
  if (fd_ >= 0) ::close(fd_);
}

int OutputTail::watch_descriptor() {
  if (!watch_) watch_ = std::make_unique<FileWatch>(file_);
  return watch_->descriptor();
}

void OutputTail::open() {
  if (fd_ < 0) fd_ = ::open(file_.c_str(), O_RDONLY | O_CLOEXEC);
}

void OutputTail::read(bool last, const std::function<void(const std::string&)>& use) {
  char buffer[1 << 16];
  if (watch_) watch_->forget_events();
  open();
  const auto finished = [&] {
    if (skip_ > 0)
      --skip_;
    else
      use(line_.text());
  };
  while (fd_ >= 0) {
    const ssize_t n = ::read(fd_, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    each_finished_line(line_, {buffer, static_cast<size_t>(n)}, finished);
  }
  if (last && !line_.empty()) {
    finished();
    line_.clear();
  }
}

OutputPart read_output(const fs::path& file, int64_t from, int64_t most) {
  OutputPart part;
  std::deque<std::string> kept;
  BoundedLine line(kMostLineHead, kMostLineTail);
  read_lines(file, line, [&] {
    ++part.total;
    if (most <= 0 || (from > 0 && (part.total < from || static_cast<int64_t>(kept.size()) >= most))) return;
    if (from == 0 && static_cast<int64_t>(kept.size()) >= most) kept.pop_front();
    kept.push_back(line.text());
  });
  part.unfinished = line.text();
  part.first = from > 0 ? from : part.total - static_cast<int64_t>(kept.size()) + 1;
  part.lines.assign(std::make_move_iterator(kept.begin()), std::make_move_iterator(kept.end()));
  return part;
}

std::string last_output(const fs::path& file, int64_t most) {
  const OutputPart part = read_output(file, 0, most);
  std::string text;
  for (const std::string& line : part.lines) text += "\n  " + line;
  return part.unfinished.empty() ? text : text + "\n  " + part.unfinished;
}

}  // namespace lockstep
