#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/platform/descriptors.h"
#include "base/strict_stream.h"

namespace lockstep {
namespace {

int socket_flags(Waiting waiting) {
  return SOCK_CLOEXEC | (waiting == Waiting::kNever ? SOCK_NONBLOCK : 0);
}

}  // namespace

int make_pipe(int ends[2]) {
  return ::pipe2(ends, O_CLOEXEC);
}

int make_socket(int domain, Waiting waiting) {
  return ::socket(domain, SOCK_STREAM | socket_flags(waiting), 0);
}

int make_socket_pair(int ends[2]) {
  return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
}

int accept_socket(int listener, sockaddr* peer, socklen_t* peer_bytes, Waiting waiting) {
  return ::accept4(listener, peer, peer_bytes, socket_flags(waiting));
}

ssize_t send_without_signal(int fd, const void* data, size_t bytes, int flags) {
  return ::send(fd, data, bytes, flags | MSG_NOSIGNAL);
}

bool peer_has_closed(int fd) {
  pollfd watched{fd, POLLRDHUP, 0};
  return ::poll(&watched, 1, 0) > 0 && (watched.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

int64_t user_of_peer(int unix_socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(unix_socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? static_cast<int64_t>(peer.uid) : -1;
}

int64_t user_of_peer(const sockaddr_in& peer, const sockaddr_in& own) {
  std::ifstream table = strict_file("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  const auto end_of = [](const sockaddr_in& address) {
    char text[32];
    std::snprintf(text, sizeof text, "%08X:%04X", address.sin_addr.s_addr, ntohs(address.sin_port));
    return std::string(text);
  };
  const std::string wanted = end_of(peer) + " " + end_of(own);
  while (std::getline(table, line)) {
    if (line.find(wanted) == std::string::npos) continue;
    // sl local remote st queues tr:when retransmits uid
    char local[64], remote[64], state[8], queues[32], when[32], again[16];
    long long uid = -1;
    if (std::sscanf(line.c_str(), " %*[^:]: %63s %63s %7s %31s %31s %15s %lld", local, remote, state, queues, when,
                    again, &uid) == 7)
      return uid;
  }
  return -1;
}

int make_unnamed_file(const char* purpose) {
  return ::memfd_create(purpose, MFD_CLOEXEC);
}

int create_uncached(const char* path, int flags, mode_t mode) {
  return ::open(path, flags | O_CREAT | O_CLOEXEC | O_DIRECT, mode);
}

int rename_without_replacing(const char* from, const char* to) {
  return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
}

}  // namespace lockstep
