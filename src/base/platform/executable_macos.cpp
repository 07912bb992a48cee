#include <crt_externs.h>
#include <mach-o/dyld.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/platform/executable.h"

namespace lockstep {

std::filesystem::path own_program() {
  uint32_t bytes = 0;
  _NSGetExecutablePath(nullptr, &bytes);
  std::string path(bytes, '\0');
  if (_NSGetExecutablePath(path.data(), &bytes) != 0) return {};
  std::error_code error;
  std::filesystem::path whole = std::filesystem::canonical(path.c_str(), error);  // it may be a link, as Homebrew's are
  return error ? std::filesystem::path(path.c_str()) : whole;
}

std::vector<std::string> own_command_line() {
  char** const argv = *_NSGetArgv();
  return {argv, argv + *_NSGetArgc()};
}

// A library has no `environ` of its own there.
char** environment_entries() {
  return *_NSGetEnviron();
}

ProgramFile own_program_file() {
  struct stat facts {};
  ::stat(own_program().c_str(), &facts);
  return {facts.st_mtimespec.tv_sec, facts.st_mtimespec.tv_nsec, static_cast<uint64_t>(facts.st_size)};
}

void start_program_anew(char** argv) {
  ::execv(own_program().c_str(), argv);
}

const char* library_suffix() {
  return ".dylib";
}

const char* preload_variable() {
  return "DYLD_INSERT_LIBRARIES";
}

const char* page_opener() {
  return "open";
}

}  // namespace lockstep
