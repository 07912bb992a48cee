#include "cli/machine.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "base/file.h"

namespace lockstep {
namespace {

// The first line a program prints. No shell: the path may hold anything.
std::string first_line_of(const std::string& program, const char* argument) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    ::execlp(program.c_str(), program.c_str(), argument, static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text(256, '\0');
  const ssize_t got = child > 0 ? ::read(ends[0], text.data(), text.size()) : 0;
  ::close(ends[0]);
  int status = 1;
  if (child > 0) ::waitpid(child, &status, 0);
  text.resize(status == 0 && got > 0 ? static_cast<size_t>(got) : 0);
  return text.substr(0, text.find('\n'));
}

}  // namespace

PythonFacts python_facts() {
  std::error_code error;
  for (const std::string path : {".venv/bin/python", "python3"}) {
    if (path.find('/') != std::string::npos && !fs::exists(path, error)) continue;
    const std::string version = first_line_of(path, "--version");
    if (!version.empty()) return {path, version};
  }
  return {};
}

}  // namespace lockstep
