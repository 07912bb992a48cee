#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "platform.h"

namespace lockstep_agent {
namespace {

int resident_file = -1;

}  // namespace

int make_unix_socket() {
  return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

ssize_t send_at_once(int fd, const void* data, size_t bytes) {
  return ::send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool tells_resident_bytes() {
  if (resident_file < 0) resident_file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  return resident_file >= 0;
}

int64_t resident_bytes() {
  char text[64];
  const ssize_t n = resident_file < 0 ? -1 : ::pread(resident_file, text, sizeof text - 1, 0);
  if (n <= 0) return 0;
  text[n] = 0;
  char* rest = nullptr;
  std::strtoll(text, &rest, 10);
  return std::strtoll(rest, nullptr, 10) * ::sysconf(_SC_PAGESIZE);
}

}  // namespace lockstep_agent
