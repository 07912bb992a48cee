#include "batch/line_child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/broken_pipe.h"
#include "base/error.h"
#include "base/platform/descriptors.h"

namespace lockstep {

LineChild::LineChild(const std::vector<std::string>& argv, const fs::path& log) {
  // Sockets, not pipes: writing to one whose reader has gone can be told not to raise SIGPIPE.
  int input[2], output[2];
  if (make_socket_pair(input) != 0) fail(Code::kIo, "batch", std::string("socketpair: ") + std::strerror(errno));
  if (make_socket_pair(output) != 0) {
    ::close(input[0]);
    ::close(input[1]);
    fail(Code::kIo, "batch", std::string("socketpair: ") + std::strerror(errno));
  }
  to_ = input[0];
  from_ = output[0];
  ChildRequest request;
  request.argv = argv;
  request.environment = current_environment();
  request.cwd = fs::current_path();
  request.output = log;
  request.descriptors = {{input[1], STDIN_FILENO}, {output[1], STDOUT_FILENO}};
  try {
    process_ = std::make_unique<ChildProcess>(request);
  } catch (...) {
    for (const int end : {input[0], input[1], output[0], output[1]}) ::close(end);
    throw;
  }
  ::close(input[1]);
  ::close(output[1]);
}

LineChild::~LineChild() {
  send_no_more();
  ::close(from_);
}

bool LineChild::send(std::string_view line) {
  return send_fully(to_, std::string(line) + "\n");
}

void LineChild::send_no_more() {
  if (to_ >= 0) ::close(to_);
  to_ = -1;
}

bool LineChild::read_some(std::vector<std::string>& lines) {
  char buffer[1 << 16];
  const ssize_t got = ::read(from_, buffer, sizeof buffer);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (got <= 0) return false;
  rest_.append(buffer, static_cast<size_t>(got));
  for (size_t end; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1))
    lines.push_back(rest_.substr(0, end));
  return true;
}

std::string LineChild::how_it_ended() {
  ChildEnd end;
  pollfd ended{process_->end_descriptor(), POLLIN, 0};
  constexpr int kMostMilliseconds = 10000;  // it has closed its stdout: what is left is its end
  ::poll(&ended, 1, kMostMilliseconds);
  if (!process_->try_wait(end)) return "it closed its output";
  return end.by_signal() ? end.signal_name() : "exit status " + std::to_string(end.exit_code());
}

}  // namespace lockstep
