// A reader that has gone: an error of one write (EPIPE), and never the signal that ends the program. A client that
// hangs up must not take with it what serves others. Only `lockstep ... | head -1` ends as every command of the system
// does.
#pragma once
#include <csignal>
#include <string_view>

namespace lockstep {

// Once, as a program begins; a library leaves the signals of its program alone.
void ignore_broken_pipes();
// From here on the program is there for clients: it goes on where nobody reads what it prints.
void serve_when_nobody_reads();
// After a write to stdout or stderr that failed with errno: where nobody reads, the program ends as by SIGPIPE.
void end_if_nobody_reads();
// What a program that is started by this one finds as it would without it.
void add_broken_pipe_signal(sigset_t& defaults);

// All of it. False and errno where that cannot be.
bool write_fully(int fd, std::string_view bytes);
bool send_fully(int socket, std::string_view bytes);

}  // namespace lockstep
