#include <sys/stat.h>
#include <unistd.h>

#include "base/platform/executable.h"
#include "base/strict_stream.h"

namespace lockstep {
namespace {

constexpr const char* kOwnProgram = "/proc/self/exe";

}  // namespace

std::filesystem::path own_program() {
  std::error_code error;
  std::filesystem::path program = std::filesystem::read_symlink(kOwnProgram, error);
  return error ? std::filesystem::path() : program;
}

std::vector<std::string> own_command_line() {
  std::vector<std::string> words;
  std::ifstream file = strict_file("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

char** environment_entries() {
  return environ;
}

ProgramFile own_program_file() {
  struct stat facts {};
  ::stat(kOwnProgram, &facts);
  return {facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec, static_cast<uint64_t>(facts.st_size)};
}

void start_program_anew(char** argv) {
  ::execv(own_program().c_str(), argv);  // by its name, which others see
  ::execv(kOwnProgram, argv);
}

const char* library_suffix() {
  return ".so";
}

const char* preload_variable() {
  return "LD_PRELOAD";
}

const char* page_opener() {
  return "xdg-open";
}

}  // namespace lockstep
