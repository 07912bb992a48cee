#include "cli/open_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/text.h"

extern char** environ;

namespace lockstep {
namespace {

// $BROWSER, as elsewhere, or what the desktop has chosen. The address is one argument: no shell reads it.
bool start_browser(const std::string& address) {
  const char* chosen = std::getenv("BROWSER");
  const std::string program = chosen && *chosen ? chosen : "xdg-open";
  const char* const argv[] = {program.c_str(), address.c_str(), nullptr};
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  for (const int fd : {0, 1, 2}) posix_spawn_file_actions_addopen(&quiet, fd, "/dev/null", fd ? O_WRONLY : O_RDONLY, 0);
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, program.c_str(), &quiet, nullptr, const_cast<char* const*>(argv), environ);
  posix_spawn_file_actions_destroy(&quiet);
  if (failed) return false;
  std::thread([pid] { ::waitpid(pid, nullptr, 0); }).detach();
  return true;
}

}  // namespace

void open_page(const App& app, const std::string& host, int port, const std::string& token) {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  const std::string address = fmt::format("http://{}:{}/#token={}", name, port, token);
  if (!start_browser(address) && !app.global.quiet)
    print_error("lockstep: no browser could be started; open {}\n", address);
}

}  // namespace lockstep
