#include "http/bounded_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/platform/descriptors.h"
#include "http/http_head.h"

namespace lockstep {
namespace {

constexpr size_t kReadBytes = 16 << 10;
constexpr size_t kMostPending = 64 << 10;
constexpr double kHurriedSecs = 1;  // a head takes so long at most while others wait

std::chrono::steady_clock::time_point secs_from_now(double secs) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(secs * 1000));
}

}  // namespace

int milliseconds_until(std::chrono::steady_clock::time_point when) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(when - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 3600 * 1000));
}

BoundedSocket::Head BoundedSocket::read_head(const std::function<bool()>& hurry) {
  received_.erase(0, at_);
  // A connection lives for hours: one large request must not keep its memory for as long.
  if (received_.capacity() > limits_.header_bytes + kReadBytes) received_.shrink_to_fit();
  at_ = head_bytes_ = 0;
  deadline_ = secs_from_now(limits_.request_secs);
  const auto hurried = secs_from_now(kHurriedSecs);
  for (size_t looked_at = 0;;) {
    if (const size_t end = end_of_head(received_, looked_at); end != std::string::npos && end <= limits_.header_bytes) {
      head_bytes_ = end;
      // What came with the head counts: of the body no more is taken than may be.
      budget_ = limits_.body_bytes - std::min(limits_.body_bytes, received_.size() - end);
      return Head::kWhole;
    }
    if (received_.size() >= limits_.header_bytes) return Head::kTooLong;
    looked_at = received_.size() - std::min<size_t>(received_.size(), 2);
    // In slices: whether others wait is only known by looking.
    while (!ready(POLLIN, std::min(milliseconds_until(deadline_), 50)))
      if (milliseconds_until(deadline_) == 0 || (milliseconds_until(hurried) == 0 && hurry())) return Head::kGone;
    if (receive(limits_.header_bytes - received_.size()) <= 0) return Head::kGone;
  }
}

void BoundedSocket::allow(uint64_t body_bytes, double secs) {
  const size_t here = received_.size() - std::min(received_.size(), std::max(at_, head_bytes_));
  budget_ = static_cast<size_t>(body_bytes - std::min<uint64_t>(body_bytes, here));
  deadline_ = secs_from_now(secs);
}

ssize_t BoundedSocket::receive(size_t most) {
  char buffer[kReadBytes];
  ssize_t n;
  do n = ::recv(fd_, buffer, std::min(sizeof buffer, most), 0);
  while (n < 0 && errno == EINTR);
  if (n > 0) received_.append(buffer, static_cast<size_t>(n));
  return n;
}

bool BoundedSocket::is_readable() const {
  return has_more() || (flush() && ready(POLLIN, milliseconds_until(deadline_)));
}

bool BoundedSocket::is_writable() const {
  return ready(POLLOUT, write_ms());
}

ssize_t BoundedSocket::read(char* to, size_t size) {
  if (at_ == received_.size()) {
    received_.clear();  // a body goes through in pieces: whoever reads it keeps it
    at_ = head_bytes_ = 0;
    // The client may wait for our word to go on (100 Continue).
    if (budget_ == 0 || !flush() || !ready(POLLIN, milliseconds_until(deadline_))) return -1;
    const ssize_t n = receive(budget_);
    if (n <= 0) return n;
    budget_ -= static_cast<size_t>(n);
  }
  const size_t n = std::min(size, received_.size() - at_);
  std::copy_n(received_.data() + at_, n, to);
  at_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t BoundedSocket::write(std::string_view bytes, bool at_once) {
  pending_ += bytes;
  if ((at_once || pending_.size() >= kMostPending) && !flush()) return -1;
  return static_cast<ssize_t>(bytes.size());
}

bool BoundedSocket::flush() const {
  size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t n =
        ready(POLLOUT, write_ms()) ? send_without_signal(fd_, pending_.data() + done, pending_.size() - done) : -1;
    if (n <= 0 && !(n < 0 && errno == EINTR)) break;
    done += static_cast<size_t>(std::max<ssize_t>(n, 0));
  }
  const bool all = done == pending_.size();
  pending_.clear();
  if (pending_.capacity() > 2 * kMostPending) pending_.shrink_to_fit();
  return all;
}

bool BoundedSocket::ready(short events, int milliseconds) const {
  pollfd watched{fd_, events, 0};
  int n;
  do n = ::poll(&watched, 1, milliseconds);
  while (n < 0 && errno == EINTR);
  return n > 0 && (watched.revents & (events | POLLHUP));
}

}  // namespace lockstep
