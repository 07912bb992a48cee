#include "debugger/agent_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/message.h"
#include "base/new_folder.h"
#include "base/platform/descriptors.h"

namespace lockstep {
namespace {

constexpr size_t kLongestPath = 100;  // a socket address holds 104 bytes on some systems, 108 on others
constexpr std::string_view kShortFolder = "lockstep-";
constexpr size_t kLongestTemporary = 60;  // a folder in which a socket's address still has room

// TMPDIR where its path is short enough for a socket, else /tmp.
std::string temporary_folder() {
  const char* told = std::getenv("TMPDIR");
  const std::string folder = told ? told : "";
  return folder.empty() || folder[0] != '/' || folder.size() > kLongestTemporary ? "/tmp" : folder;
}

[[noreturn]] void refuse(const std::string& what) {
  fail(Code::kIo, "start", what + ": " + std::strerror(errno));
}

// What a service has left that was killed while it listened: a socket, or a link to one in a folder of its own.
void remove_left(const fs::path& path) {
  std::error_code none;
  const fs::path target = fs::read_symlink(path, none);
  if (target.filename() == path.filename() && target.parent_path().filename().string().starts_with(kShortFolder)) {
    ::unlink(target.c_str());
    ::rmdir(target.parent_path().c_str());
  }
  ::unlink(path.c_str());
}

// The messages that were handed on: each is handed on once, even where its use ends in an exception.
struct Taken {
  std::string& pending;
  size_t bytes = 0;
  ~Taken() { drop(); }
  void drop() { pending.erase(0, std::exchange(bytes, 0)); }
};

}  // namespace

AgentListener::AgentListener(const fs::path& session_folder) : path_(session_folder / "agent.sock") {
  remove_left(path_);
  if (path_.string().size() > kLongestPath) {
    own_folder_ = make_new_folder(temporary_folder(), kShortFolder, "start");
    link_ = std::exchange(path_, own_folder_ / "agent.sock");
  }
  fd_ = make_socket(AF_UNIX, Waiting::kNever);
  if (fd_ < 0) refuse("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
  if (::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path_.c_str(), 0600) != 0 || ::listen(fd_, 4) != 0 ||
      (!link_.empty() && ::symlink(path_.c_str(), link_.c_str()) != 0)) {
    const int error = errno;
    close();
    errno = error;
    refuse(path_.string());
  }
}

AgentListener::~AgentListener() {
  close();
}

void AgentListener::close() {
  if (fd_ < 0) return;
  ::close(fd_);
  fd_ = -1;
  ::unlink(path_.c_str());
  if (!link_.empty()) ::unlink(link_.c_str());
  if (!own_folder_.empty()) ::rmdir(own_folder_.c_str());
}

int AgentListener::accept() {
  const int fd = accept_socket(fd_, nullptr, nullptr, Waiting::kNever);
  if (fd < 0) return -1;
  if (user_of_peer(fd) != static_cast<int64_t>(::geteuid())) {
    ::close(fd);
    return -1;
  }
  return fd;
}

AgentSocket::~AgentSocket() {
  if (fd_ >= 0) ::close(fd_);
}

bool AgentSocket::send(const Json& message, double timeout_secs) const {
  const std::string text = message.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (text.size() > kMostMessageBytes)
    fail(Code::kBadInput, "debug", "the request is too large", {.expected = "at most 1 MiB"});
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_secs);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = send_without_signal(fd_, text.data() + done, text.size() - done);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      if (std::chrono::steady_clock::now() > until) return false;
      pollfd watched{fd_, POLLOUT, 0};
      ::poll(&watched, 1, 50);
    } else if (n >= 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool AgentSocket::receive(const std::function<void(Json)>& use) {
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n <= 0) return false;
    pending_.append(buffer, static_cast<size_t>(n));
    Taken taken{pending_};
    for (size_t end; (end = pending_.find('\n', taken.bytes)) != std::string::npos;) {
      const size_t from = std::exchange(taken.bytes, end + 1);
      auto message = json_message(std::string_view(pending_).substr(from, end - from));
      if (message && message->is_object()) use(std::move(*message));
    }
    taken.drop();
    if (pending_.size() > 2 * kMostMessageBytes) return false;  // no message of ours is so long
  }
}

}  // namespace lockstep
