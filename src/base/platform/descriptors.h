// Pipes, sockets and files that no started program inherits, and what is asked of them in other words elsewhere.
#pragma once
#include <netinet/in.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace lockstep {

enum class Waiting { kBlocks, kNever };

// As pipe(), socket(), socketpair() and accept(), all closed on exec: -1 and errno where the system refuses.
int make_pipe(int ends[2]);
int make_socket(int domain, Waiting waiting = Waiting::kBlocks);  // a stream
int make_socket_pair(int ends[2]);
int accept_socket(int listener, sockaddr* peer, socklen_t* peer_bytes, Waiting waiting = Waiting::kBlocks);

// As send(): a reader that has gone is EPIPE and no signal.
ssize_t send_without_signal(int fd, const void* data, size_t bytes, int flags = 0);

bool peer_has_closed(int fd);  // a socket's other side sends no more

// The user at the other end, -1 where the system does not say: of a Unix socket, and of a TCP connection on this
// machine, which has an end at `peer` and one, ours, at `own`.
int64_t user_of_peer(int unix_socket);
int64_t user_of_peer(const sockaddr_in& peer, const sockaddr_in& own);

int make_unnamed_file(const char* purpose);  // gone with its last descriptor; -1 and errno

// For writes of whole pages that are not to fill the system's cache. -1 and errno; EINVAL: not on this file system,
// where an empty file may be left.
int create_uncached(const char* path, int flags, mode_t mode);

int rename_without_replacing(const char* from, const char* to);  // as rename(): EEXIST where `to` exists

}  // namespace lockstep
