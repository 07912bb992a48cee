#include "base/process.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace lockstep {
namespace {

std::string folder_of(pid_t pid) {
  return "/proc/" + std::to_string(pid);
}

std::string command_of(pid_t pid) {
  std::ifstream file(folder_of(pid) + "/cmdline", std::ios::binary);
  std::string words(4096, '\0');
  file.read(words.data(), static_cast<std::streamsize>(words.size()));
  words.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  while (!words.empty() && words.back() == '\0') words.pop_back();
  std::replace(words.begin(), words.end(), '\0', ' ');
  return words;
}

// All but the command; none where the process has ended, waited for or not.
std::optional<ProcessFacts> status_of(pid_t pid) {
  std::ifstream file(folder_of(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const size_t name_end = line.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(line.substr(name_end + 1));
  ProcessFacts facts;
  facts.pid = pid;
  std::string state, group, field;
  rest >> state >> facts.parent >> group >> facts.session;
  for (int i = 7; i < 22; ++i) rest >> field;
  if (state == "Z" || !(rest >> facts.start_ticks)) return std::nullopt;
  return facts;
}

}  // namespace

std::optional<ProcessFacts> process_facts(pid_t pid) {
  std::optional<ProcessFacts> facts = status_of(pid);
  if (facts) facts->command = command_of(pid);
  return facts;
}

uint64_t process_start_ticks(pid_t pid) {
  const std::optional<ProcessFacts> facts = status_of(pid);
  return facts ? facts->start_ticks : 0;
}

std::vector<ProcessFacts> own_processes() {
  std::vector<ProcessFacts> all;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    pid_t pid = 0;
    const auto [stop, failure] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failure != std::errc{} || stop != name.data() + name.size() || pid == ::getpid()) continue;
    struct stat info {};
    if (::stat(it->path().c_str(), &info) != 0 || info.st_uid != ::geteuid()) continue;
    if (auto facts = process_facts(pid)) all.push_back(std::move(*facts));
  }
  return all;
}

bool send_signal(const ProcessFacts& process, int number) {
  if (process.pid <= 1 || process.start_ticks == 0) return false;
  // The descriptor holds the process, whatever becomes of its number between the look and the signal.
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0));
  if (fd < 0) return false;
  const bool same = process_start_ticks(process.pid) == process.start_ticks;
  const bool sent = same && ::syscall(SYS_pidfd_send_signal, fd, number, nullptr, 0) == 0;
  ::close(fd);
  return sent;
}

bool is_alive(const ProcessFacts& process) {
  return process.start_ticks != 0 && process_start_ticks(process.pid) == process.start_ticks;
}

}  // namespace lockstep
