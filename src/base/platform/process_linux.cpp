#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/folder.h"
#include "base/platform/process_end.h"
#include "base/platform/process_status.h"
#include "base/process.h"
#include "base/strict_stream.h"

namespace lockstep {
namespace {

constexpr size_t kMostMapBytes = 16 << 20;

std::string folder_of(pid_t pid) {
  return "/proc/" + std::to_string(pid);
}

// A file of the process's folder, or its beginning; none where it has ended or is not ours to look at.
std::optional<std::string> process_file(pid_t pid, const char* name, size_t most_bytes) {
  const std::string path = folder_of(pid) + "/" + name;
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  int error = fd < 0 ? errno : 0;
  const std::unique_ptr<const int, void (*)(const int*)> closed(&fd, [](const int* open) {
    if (*open >= 0) ::close(*open);
  });
  while (!error && text.size() < most_bytes) {
    char piece[4096];
    const ssize_t got = ::read(fd, piece, std::min(sizeof piece, most_bytes - text.size()));
    if (got == 0) break;
    if (got > 0)
      text.append(piece, static_cast<size_t>(got));
    else if (errno != EINTR)
      error = errno;
  }
  if (error == ENOENT || error == ESRCH || error == EACCES || error == EPERM) return std::nullopt;
  if (error) fail(Code::kIo, "process", path + ": " + std::strerror(error));
  return text;
}

}  // namespace

std::string process_command(pid_t pid) {
  std::string words = process_file(pid, "cmdline", kMostCommandBytes).value_or("");
  while (!words.empty() && words.back() == '\0') words.pop_back();
  std::replace(words.begin(), words.end(), '\0', ' ');
  return words;
}

std::optional<ProcessFacts> process_status(pid_t pid) {
  const std::optional<std::string> line = process_file(pid, "stat", 4096);
  const size_t name_end = line ? line->rfind(')') : std::string::npos;  // the name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest = strict_text(line->substr(name_end + 1));
  ProcessFacts facts;
  facts.pid = pid;
  std::string state, group, field;
  rest >> state >> facts.parent >> group >> facts.session;
  for (int i = 7; i < 22; ++i) rest >> field;
  if (state == "Z" || !(rest >> facts.start_ticks)) return std::nullopt;
  return facts;
}

std::vector<ProcessFacts> own_processes() {
  std::vector<ProcessFacts> all;
  for (const fs::directory_entry& entry : folder_entries("/proc", "processes")) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    const auto [stop, failure] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failure != std::errc{} || stop != name.data() + name.size() || pid == ::getpid()) continue;
    struct stat info {};
    if (::stat(entry.path().c_str(), &info) != 0 || info.st_uid != ::geteuid()) continue;
    if (auto facts = process_facts(pid)) all.push_back(std::move(*facts));
  }
  return all;
}

std::vector<std::string> mapped_files(pid_t pid) {
  std::vector<std::string> files;
  std::istringstream maps = strict_text(process_file(pid, "maps", kMostMapBytes).value_or(""));
  for (std::string line; files.size() < kMostMappedFiles && std::getline(maps, line);)
    if (const size_t at = line.find('/'); at != std::string::npos) files.push_back(line.substr(at));
  return files;
}

bool send_signal(const ProcessFacts& process, int number) {
  if (process.pid <= 1 || process.start_ticks == 0) return false;
  // The descriptor holds the process, whatever becomes of its number between the look and the signal.
  const int fd = process_end_descriptor(process.pid);
  if (fd < 0) return false;
  const bool same = process_start_ticks(process.pid) == process.start_ticks;
  const bool sent = same && ::syscall(SYS_pidfd_send_signal, fd, number, nullptr, 0) == 0;
  ::close(fd);
  return sent;
}

}  // namespace lockstep
