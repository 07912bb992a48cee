#include <fcntl.h>
#include <mach/mach.h>
#include <sys/socket.h>

#include "platform.h"

namespace lockstep_agent {

int make_unix_socket() {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  const int on = 1;
  if (fd < 0) return fd;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
  return fd;
}

ssize_t send_at_once(int fd, const void* data, size_t bytes) {
  return ::send(fd, data, bytes, MSG_DONTWAIT);
}

bool tells_resident_bytes() {
  return true;
}

int64_t resident_bytes() {
  mach_task_basic_info_data_t facts{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  const kern_return_t asked =
      ::task_info(::mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&facts), &count);
  return asked == KERN_SUCCESS ? static_cast<int64_t>(facts.resident_size) : 0;
}

}  // namespace lockstep_agent
