#include "debugger/output_log.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <fstream>

namespace lockstep {
namespace {
constexpr size_t kMostLineBytes = 4000;
}

OutputTail::~OutputTail() {
  if (fd_ >= 0) ::close(fd_);
  if (notify_ >= 0) ::close(notify_);
}

int OutputTail::watch_descriptor() {
  if (!notify_tried_) {
    notify_tried_ = true;
    notify_ = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (notify_ >= 0 && ::inotify_add_watch(notify_, file_.c_str(), IN_MODIFY) < 0) {
      ::close(notify_);
      notify_ = -1;
    }
  }
  return notify_;
}

void OutputTail::open() {
  if (fd_ < 0) fd_ = ::open(file_.c_str(), O_RDONLY | O_CLOEXEC);
}

void OutputTail::read(bool last, const std::function<void(const std::string&)>& use) {
  char buffer[1 << 16];
  if (notify_ >= 0)
    while (::read(notify_, buffer, sizeof buffer) > 0) {  // what it says we see in the file
    }
  open();
  while (fd_ >= 0) {
    const ssize_t n = ::read(fd_, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    for (ssize_t i = 0; i < n; ++i) {
      if (buffer[i] != '\n') partial_ += buffer[i];
      if (buffer[i] == '\n' || partial_.size() >= kMostLineBytes) {
        use(partial_);
        partial_.clear();
      }
    }
  }
  if (last && !partial_.empty()) {
    use(partial_);
    partial_.clear();
  }
}

OutputPart read_output(const fs::path& file, int64_t from, int64_t most) {
  OutputPart part;
  std::ifstream in(file, std::ios::binary);
  std::deque<std::string> kept;
  for (std::string line; std::getline(in, line);) {
    ++part.total;
    if (from > 0 && (part.total < from || static_cast<int64_t>(kept.size()) >= most)) continue;
    if (line.size() > kMostLineBytes) line = line.substr(0, kMostLineBytes) + "...";
    if (from == 0 && static_cast<int64_t>(kept.size()) >= most && !kept.empty()) kept.pop_front();
    if (most > 0) kept.push_back(std::move(line));
  }
  part.first = from > 0 ? from : part.total - static_cast<int64_t>(kept.size()) + 1;
  part.lines.assign(std::make_move_iterator(kept.begin()), std::make_move_iterator(kept.end()));
  return part;
}

}  // namespace lockstep
