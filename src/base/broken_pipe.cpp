#include "base/broken_pipe.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/platform/descriptors.h"

namespace lockstep {
namespace {

std::atomic<bool> ignored_by_us{false};  // and not by whoever started us
std::atomic<bool> serves{false};

template <typename Write>
bool all_written(int fd, std::string_view bytes, Write write) {
  while (!bytes.empty()) {
    const ssize_t n = write(bytes.data(), bytes.size());
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {  // as whoever gave it to us has left it
      pollfd writable{fd, POLLOUT, 0};
      ::poll(&writable, 1, -1);
    } else if (n == 0 || errno != EINTR) {
      if (n == 0) errno = EIO;
      return false;
    }
  }
  return true;
}

}  // namespace

void ignore_broken_pipes() {
  if (std::signal(SIGPIPE, SIG_IGN) == SIG_DFL) ignored_by_us = true;
}

void serve_when_nobody_reads() {
  serves = true;
}

void end_if_nobody_reads() {
  if (errno != EPIPE || !ignored_by_us || serves) return;
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
}

void add_broken_pipe_signal(sigset_t& defaults) {
  if (ignored_by_us) sigaddset(&defaults, SIGPIPE);
}

bool write_fully(int fd, std::string_view bytes) {
  return all_written(fd, bytes, [fd](const char* data, size_t size) { return ::write(fd, data, size); });
}

bool send_fully(int socket, std::string_view bytes) {
  return all_written(socket, bytes,
                     [socket](const char* data, size_t size) { return send_without_signal(socket, data, size); });
}

}  // namespace lockstep
