// What the extension asks of the system in words of its own on each: platform_linux.cpp, platform_macos.cpp.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace lockstep_agent {

int make_unix_socket();  // a stream, closed on exec; -1 and errno
// As send(), never waiting; a reader that has gone is EPIPE and no signal.
ssize_t send_at_once(int fd, const void* data, size_t bytes);

bool tells_resident_bytes();  // before the first of the next: whether the system tells
int64_t resident_bytes();     // of this process

}  // namespace lockstep_agent
