#include <libproc.h>
#include <signal.h>
#include <sys/proc_info.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/platform/process_status.h"
#include "base/process.h"

namespace lockstep {

// argc, the program's path with zeros behind it, then the words.
std::string process_command(pid_t pid) {
  int question[] = {CTL_KERN, KERN_PROCARGS2, pid};
  size_t bytes = 0;
  if (::sysctl(question, 3, nullptr, &bytes, nullptr, 0) != 0 || bytes < sizeof(int)) return {};
  std::string told(bytes, '\0');
  if (::sysctl(question, 3, told.data(), &bytes, nullptr, 0) != 0 || bytes < sizeof(int)) return {};
  told.resize(bytes);
  int words = 0;
  std::memcpy(&words, told.data(), sizeof words);
  size_t at = told.find('\0', sizeof words);
  at = at == std::string::npos ? at : told.find_first_not_of('\0', at);
  std::string command;
  for (; words > 0 && at != std::string::npos && at < told.size() && command.size() < kMostCommandBytes; --words) {
    const size_t end = std::min(told.find('\0', at), told.size());
    if (!command.empty()) command += ' ';
    command.append(told, at, end - at);
    at = end + 1;
  }
  command.resize(std::min(command.size(), kMostCommandBytes));
  return command;
}

std::optional<ProcessFacts> process_status(pid_t pid) {
  proc_bsdinfo told{};
  if (pid <= 0 || ::proc_pidinfo(pid, PROC_PIDTBSDINFO, 0, &told, sizeof told) != sizeof told) return std::nullopt;
  if (told.pbi_status == SZOMB) return std::nullopt;
  ProcessFacts facts;
  facts.pid = pid;
  facts.parent = static_cast<pid_t>(told.pbi_ppid);
  facts.session = ::getsid(pid);
  facts.start_ticks = told.pbi_start_tvsec * 1'000'000 + told.pbi_start_tvusec;  // microseconds since 1970 there
  return facts;
}

std::vector<ProcessFacts> own_processes() {
  std::vector<pid_t> pids(4096);
  int bytes = 0;
  while (true) {
    bytes = ::proc_listpids(PROC_UID_ONLY, ::geteuid(), pids.data(), static_cast<int>(pids.size() * sizeof(pid_t)));
    if (bytes < static_cast<int>(pids.size() * sizeof(pid_t))) break;
    pids.resize(2 * pids.size());  // full: there may be more
  }
  pids.resize(static_cast<size_t>(std::max(bytes, 0)) / sizeof(pid_t));
  std::vector<ProcessFacts> all;
  for (const pid_t pid : pids) {
    if (pid == ::getpid()) continue;
    if (auto facts = process_facts(pid)) all.push_back(std::move(*facts));
  }
  return all;
}

std::vector<std::string> mapped_files(pid_t pid) {
  std::vector<std::string> files;
  proc_regionwithpathinfo region{};
  for (uint64_t at = 0; files.size() < kMostMappedFiles;) {
    if (::proc_pidinfo(pid, PROC_PIDREGIONPATHINFO, at, &region, sizeof region) != sizeof region) break;
    if (region.prp_vip.vip_path[0]) files.emplace_back(region.prp_vip.vip_path);
    const uint64_t next = region.prp_prinfo.pri_address + region.prp_prinfo.pri_size;
    if (next <= at) break;
    at = next;
  }
  return files;
}

// There is no descriptor of a process to signal through: between the look and the signal its number could be given to
// another, though numbers go round all others first.
bool send_signal(const ProcessFacts& process, int number) {
  if (process.pid <= 1 || process.start_ticks == 0) return false;
  return process_start_ticks(process.pid) == process.start_ticks && ::kill(process.pid, number) == 0;
}

}  // namespace lockstep
