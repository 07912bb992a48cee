#include "debugger/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.h"
#include "base/platform/executable.h"
#include "base/platform/process_end.h"
#include "base/platform/spawn.h"
#include "base/strict_stream.h"

namespace lockstep {
namespace {

constexpr uint64_t kSmallBytes = 64 << 20;

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

bool is_program(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

// posix_spawn's two structs, released whatever happens.
struct SpawnPlan {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnPlan() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
};

}  // namespace

fs::path find_program(const std::string& name, const Environment& environment, const fs::path& cwd) {
  if (name.find('/') != std::string::npos) {
    const fs::path path = cwd / name;  // an absolute name stays as it is
    if (is_program(path)) return path;
  } else {
    const auto found = environment.find("PATH");
    std::istringstream folders =
        strict_text(found == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : found->second);
    for (std::string folder; std::getline(folders, folder, ':');)
      if (const fs::path path = cwd / folder / name; is_program(path)) return path;
  }
  fail(Code::kNotFound, "start", name + " is no program that can be run", {.hint = "--python with a path"});
}

ChildProcess::ChildProcess(const ChildRequest& request) {
  std::vector<std::string> arguments = request.argv, entries;
  const fs::path program = find_program(arguments.at(0), request.environment, request.cwd);
  for (const auto& [name, value] : request.environment) entries.push_back(name + "=" + value);
  std::error_code no_folder;
  if (!fs::is_directory(request.cwd, no_folder))
    fail(Code::kNotFound, "start", "no folder " + request.cwd.string() + " to run in");

  SpawnPlan plan;
  const std::string input = request.input.empty() ? "/dev/null" : request.input.string();
  posix_spawn_file_actions_addopen(&plan.actions, 0, input.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&plan.actions, 1, request.output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&plan.actions, 1, 2);
  int above = 3;
  for (const auto& [ours, theirs] : request.descriptors) {
    posix_spawn_file_actions_adddup2(&plan.actions, ours, theirs);
    above = std::max(above, theirs + 1);
  }
  // The server's own sockets are not all close-on-exec: a client would wait for a reply as long as the program runs.
  short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID;
  hand_on_only(plan.actions, flags, above, {});
  posix_spawn_file_actions_addchdir_np(&plan.actions, request.cwd.c_str());

  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  sigdelset(&all, SIGKILL);
  sigdelset(&all, SIGSTOP);
  posix_spawnattr_setsigdefault(&plan.attributes, &all);  // what we ignore or handle must not be inherited
  posix_spawnattr_setsigmask(&plan.attributes, &none);
  posix_spawnattr_setflags(&plan.attributes, flags);

  inherited_peak_bytes_ = peak_that_children_inherit();
  const int error = ::posix_spawn(&pid_, program.c_str(), &plan.actions, &plan.attributes, pointers(arguments).data(),
                                  pointers(entries).data());
  if (error) {
    pid_ = -1;
    fail(error == ENOENT ? Code::kNotFound : Code::kIo, "start", program.string() + ": " + std::strerror(error));
  }
  end_fd_ = process_end_descriptor(pid_);
}

ChildProcess::ChildProcess(pid_t pid, uint64_t start_ticks) : pid_(pid), adopted_(true) {
  end_.seen = false;
  end_fd_ = pid > 1 ? process_end_descriptor(pid) : -1;
  // Looked at after the descriptor is ours: from here on it means this process or none.
  waited_ = end_fd_ < 0 || start_ticks == 0 || process_start_ticks(pid) != start_ticks;
  if (waited_ && end_fd_ >= 0) {
    ::close(end_fd_);
    end_fd_ = -1;
  }
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !waited_) {
    signal(SIGKILL, true);
    pollfd ended{end_fd_, POLLIN, 0};
    if (adopted_) ::poll(&ended, 1, 10000);
    int status;
    while (!adopted_ && ::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  if (end_fd_ >= 0) ::close(end_fd_);
}

bool ChildProcess::try_wait(ChildEnd& end) {
  const std::lock_guard lock(waiting_);
  if (!waited_ && adopted_) {
    pollfd ended{end_fd_, POLLIN, 0};
    if (::poll(&ended, 1, 0) <= 0) return false;
    waited_ = true;
  }
  if (!waited_) {
    int status = 0;
    rusage usage{};
    pid_t waited;
    do waited = ::wait4(pid_, &status, WNOHANG, &usage);
    while (waited < 0 && errno == EINTR);
    if (waited != pid_) return false;
    waited_ = true;
    // Between its start and its first instruction the child shares our memory, and the system counts it as the child's:
    // a figure that is only our own peak of that time, and large, says nothing.
    const uint64_t told = bytes_of_peak(usage.ru_maxrss);
    end_ = {status, told > inherited_peak_bytes_ || told < kSmallBytes ? told : 0};
  }
  end = end_;
  return true;
}

void ChildProcess::signal(int number, bool with_children) const {
  const std::lock_guard lock(waiting_);
  if (pid_ <= 0 || (adopted_ && waited_)) return;  // somebody else's number by now, perhaps
  // Its process group outlives it while children are there; the number is then still taken, so it cannot hit a stranger
  // as long as one child lives, and nobody once none does.
  if (with_children) ::kill(-pid_, number);
  if (!waited_) ::kill(pid_, number);
}

bool ChildEnd::by_signal() const {
  return WIFSIGNALED(status);
}

int ChildEnd::signal() const {
  return by_signal() ? WTERMSIG(status) : 0;
}

int ChildEnd::exit_code() const {
  return by_signal() ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string ChildEnd::signal_name() const {
  return by_signal() ? name_of_signal(WTERMSIG(status)) : std::string();
}

}  // namespace lockstep
