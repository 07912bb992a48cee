#include "debugger/bounded_line.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace lockstep {

void BoundedLine::append(std::string_view piece) {
  bytes_ += piece.size();
  if (head_.size() < most_head_) {
    const size_t n = std::min(piece.size(), most_head_ - head_.size());
    head_.append(piece.substr(0, n));
    piece.remove_prefix(n);
  }
  if (piece.size() > most_tail_) piece.remove_prefix(piece.size() - most_tail_);
  tail_.append(piece);
  if (tail_.size() > 2 * most_tail_) tail_.erase(0, tail_.size() - most_tail_);  // now and then, not at each byte
}

std::string BoundedLine::text() const {
  if (whole()) return head_ + tail_;
  const size_t kept = std::min(tail_.size(), most_tail_);
  const uint64_t left_out = bytes_ - head_.size() - kept;
  return head_ + " ...[" + std::to_string(left_out) + " bytes]... " + tail_.substr(tail_.size() - kept);
}

void BoundedLine::clear() {
  head_.clear();
  tail_.clear();
  bytes_ = 0;
}

bool read_lines(const fs::path& file, BoundedLine& line, const std::function<void()>& use) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    each_finished_line(line, {buffer, static_cast<size_t>(n)}, use);
  }
  ::close(fd);
  return true;
}

}  // namespace lockstep
