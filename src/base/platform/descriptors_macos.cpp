#include <arpa/inet.h>
#include <fcntl.h>
#include <libproc.h>
#include <sys/proc_info.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/platform/descriptors.h"
#include "base/process.h"

namespace lockstep {
namespace {

// In two steps, which a fork of another thread may come between: whoever starts programs here closes what it does not
// hand on.
int marked(int fd, Waiting waiting = Waiting::kBlocks) {
  if (fd < 0) return fd;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  // An accepted socket has its listener's flag there.
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, waiting == Waiting::kNever ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
  return fd;
}

bool connects(const socket_fdinfo& facts, const sockaddr_in& local, const sockaddr_in& remote) {
  if (facts.psi.soi_kind != SOCKINFO_TCP) return false;
  const in_sockinfo& ends = facts.psi.soi_proto.pri_tcp.tcpsi_ini;
  return static_cast<in_port_t>(ends.insi_lport) == local.sin_port &&
         static_cast<in_port_t>(ends.insi_fport) == remote.sin_port;
}

bool holds_connection(pid_t pid, const sockaddr_in& local, const sockaddr_in& remote) {
  const int bytes = ::proc_pidinfo(pid, PROC_PIDLISTFDS, 0, nullptr, 0);
  std::vector<proc_fdinfo> open(static_cast<size_t>(std::max(bytes, 0)) / sizeof(proc_fdinfo));
  const int got =
      ::proc_pidinfo(pid, PROC_PIDLISTFDS, 0, open.data(), static_cast<int>(open.size() * sizeof(proc_fdinfo)));
  open.resize(std::min(open.size(), static_cast<size_t>(std::max(got, 0)) / sizeof(proc_fdinfo)));
  return std::any_of(open.begin(), open.end(), [&](const proc_fdinfo& one) {
    socket_fdinfo facts{};
    return one.proc_fdtype == PROX_FDTYPE_SOCKET &&
           ::proc_pidfdinfo(pid, one.proc_fd, PROC_PIDFDSOCKETINFO, &facts, sizeof facts) == sizeof facts &&
           connects(facts, local, remote);
  });
}

}  // namespace

int make_pipe(int ends[2]) {
  const int result = ::pipe(ends);
  if (result == 0) marked(ends[0]), marked(ends[1]);
  return result;
}

int make_socket(int domain, Waiting waiting) {
  return marked(::socket(domain, SOCK_STREAM, 0), waiting);
}

int make_socket_pair(int ends[2]) {
  const int result = ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
  if (result == 0) marked(ends[0]), marked(ends[1]);
  return result;
}

int accept_socket(int listener, sockaddr* peer, socklen_t* peer_bytes, Waiting waiting) {
  return marked(::accept(listener, peer, peer_bytes), waiting);
}

// There it is the socket that is told, and ours come from several places.
ssize_t send_without_signal(int fd, const void* data, size_t bytes, int flags) {
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
  return ::send(fd, data, bytes, flags);
}

bool peer_has_closed(int fd) {
  char byte;
  const ssize_t n = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

int64_t user_of_peer(int unix_socket) {
  uid_t user = 0;
  gid_t group = 0;
  return ::getpeereid(unix_socket, &user, &group) == 0 ? static_cast<int64_t>(user) : -1;
}

// Only a process of our own user shows its sockets to us, and only that answer is wanted.
int64_t user_of_peer(const sockaddr_in& peer, const sockaddr_in& own) {
  if (holds_connection(::getpid(), peer, own)) return static_cast<int64_t>(::geteuid());
  for (const ProcessFacts& process : own_processes())
    if (holds_connection(process.pid, peer, own)) return static_cast<int64_t>(::geteuid());
  return -1;
}

int make_unnamed_file(const char* purpose) {
  const char* told = std::getenv("TMPDIR");
  std::string path = std::string(told && *told ? told : "/tmp") + "/lockstep-" + purpose + "-XXXXXX";
  const int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) ::unlink(path.c_str());
  return fd;
}

int create_uncached(const char* path, int flags, mode_t mode) {
  const int fd = ::open(path, flags | O_CREAT | O_CLOEXEC, mode);
  if (fd >= 0) ::fcntl(fd, F_NOCACHE, 1);
  return fd;
}

int rename_without_replacing(const char* from, const char* to) {
  return ::renamex_np(from, to, RENAME_EXCL);
}

}  // namespace lockstep
