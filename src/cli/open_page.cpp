#include "cli/open_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/broken_pipe.h"
#include "base/platform/executable.h"
#include "base/spawn_attributes.h"
#include "base/text.h"

namespace lockstep {
namespace {

// $BROWSER, as elsewhere, or what the desktop has chosen. The address is one argument: no shell reads it.
bool start_browser(const std::string& address) {
  const char* chosen = std::getenv("BROWSER");
  const std::string program = chosen && *chosen ? chosen : page_opener();
  const char* const argv[] = {program.c_str(), address.c_str(), nullptr};
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  for (const int fd : {0, 1, 2}) posix_spawn_file_actions_addopen(&quiet, fd, "/dev/null", fd ? O_WRONLY : O_RDONLY, 0);
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, program.c_str(), &quiet, SpawnAttributes().get(),
                                    const_cast<char* const*>(argv), environment_entries());
  posix_spawn_file_actions_destroy(&quiet);
  if (failed) return false;
  std::thread([pid] { ::waitpid(pid, nullptr, 0); }).detach();
  return true;
}

// A page that leads to ours. Command lines can be read by everybody on the machine, this file only by its owner.
fs::path write_leading_page(const fs::path& home, const std::string& address) {
  const fs::path file = home / "service" / "open.html";
  std::error_code error;
  fs::remove(file, error);
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return {};
  const std::string text =
      "<!doctype html><meta charset=\"utf-8\"><title>Lockstep</title><meta http-equiv=\"refresh\" content=\"0;url=" +
      address + "\">\n";
  const bool whole = write_fully(fd, text);
  return ::close(fd) == 0 && whole ? file : fs::path();
}

}  // namespace

void open_page(const App& app, const fs::path& home, const HttpTarget& target) {
  const std::string name = target.host.find(':') == std::string::npos ? target.host : "[" + target.host + "]";
  const std::string address = fmt::format("http://{}:{}/#token={}", name, target.port, target.token);
  const fs::path page = write_leading_page(home, address);
  if ((page.empty() || !start_browser("file://" + page.string())) && !app.global.quiet)
    print_error("lockstep: no browser could be started; open {}\n", address);
}

}  // namespace lockstep
