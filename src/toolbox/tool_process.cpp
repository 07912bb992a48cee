#include "toolbox/tool_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/broken_pipe.h"
#include "base/error.h"
#include "base/platform/descriptors.h"
#include "base/spawn_attributes.h"

namespace lockstep {
namespace {

constexpr off_t kMostAnswerBytes = 256 << 20;

// A file without a name: no pipe to run full while the other side waits.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : fd_(make_unnamed_file(name)) {
    if (fd_ < 0) fail(Code::kIo, "prune", std::string("a file without a name: ") + std::strerror(errno));
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int fd() const { return fd_; }

  void write(std::string_view text) const {
    if (!write_fully(fd_, text)) fail(Code::kIo, "prune", std::string("write: ") + std::strerror(errno));
    ::lseek(fd_, 0, SEEK_SET);
  }
  std::string text() const {
    struct stat facts {};
    if (::fstat(fd_, &facts) != 0) fail(Code::kIo, "prune", std::string("fstat: ") + std::strerror(errno));
    if (facts.st_size > kMostAnswerBytes) fail(Code::kMemory, "prune", "a helper program wrote without end");
    std::string out(static_cast<size_t>(facts.st_size), '\0');
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    out.resize(done);
    return out;
  }

 private:
  int fd_;
};

}  // namespace

ToolAnswer ask_tool(const std::vector<std::string>& argv, const std::string& input,
                    const std::map<std::string, std::string>& environment, const fs::path& cwd) {
  const MemoryFile in("in"), out("out"), errors("errors");
  in.write(input);
  std::vector<std::string> words = argv, entries;
  for (const auto& [name, value] : environment) entries.push_back(name + "=" + value);
  std::vector<char*> arguments, variables;
  for (std::string& word : words) arguments.push_back(word.data());
  for (std::string& entry : entries) variables.push_back(entry.data());
  arguments.push_back(nullptr);
  variables.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (!cwd.empty()) posix_spawn_file_actions_addchdir_np(&actions, cwd.c_str());
  posix_spawn_file_actions_adddup2(&actions, in.fd(), 0);
  posix_spawn_file_actions_adddup2(&actions, out.fd(), 1);
  posix_spawn_file_actions_adddup2(&actions, errors.fd(), 2);
  const SpawnAttributes attributes;
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, arguments[0], &actions, attributes.get(), arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) fail(Code::kNotFound, "prune", argv[0] + " could not be started: " + std::strerror(failed));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), out.text(), errors.text()};
}

}  // namespace lockstep
