#include "toolbox/started_programs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "base/error.h"
#include "base/folder.h"
#include "base/interrupt.h"
#include "base/names.h"
#include "base/platform/process_end.h"

namespace lockstep {
namespace {

constexpr uint64_t kMostProcessRecordBytes = 64 << 20;
constexpr double kSecsToDie = 10;  // of a killed process, which on a machine that waits for its disk takes seconds

// A debugged program has a session of its own: what it started and left behind is still in it.
std::vector<ProcessFacts> children_of(const ProcessFacts& program, const std::vector<ProcessFacts>& all) {
  std::set<pid_t> family{program.pid};
  std::vector<ProcessFacts> children;
  for (bool grown = true; grown;) {
    grown = false;
    for (const ProcessFacts& process : all)
      if (!family.contains(process.pid) && (family.contains(process.parent) || process.session == program.pid)) {
        family.insert(process.pid);
        children.push_back(process);
        grown = true;
      }
  }
  return children;
}

void add_programs(const fs::path& folder, const char* kind, const char* file, const char* ticks_field,
                  const std::vector<ProcessFacts>& all, std::vector<StartedProgram>& out) {
  for (const fs::directory_entry& entry : folder_entries(folder, "kill-all")) {
    check_interrupt("kill-all");
    if (auto process = process_in(entry.path() / file, ticks_field); process && process->pid != ::getpid())
      out.push_back({kind, entry.path().filename().string(), *process, children_of(*process, all)});
  }
}

// Names of files that only a process with the framework has mapped.
const std::map<std::string, std::vector<std::string>>& framework_files() {
  static const std::map<std::string, std::vector<std::string>> files{
      {"torch", {"/libtorch_cpu", "/libtorch_python", "/libtorch."}},
      {"mlx", {"/libmlx.", "/mlx/core."}},
      {"jax", {"/jaxlib/"}}};
  return files;
}

std::vector<std::string> loaded_frameworks(pid_t pid, const std::vector<std::string>& asked) {
  std::set<std::string> found;
  for (const std::string& path : mapped_files(pid))
    for (const std::string& framework : asked)
      for (const std::string& file : framework_files().at(framework))
        if (path.find(file) != std::string::npos) found.insert(framework);
  return {found.begin(), found.end()};
}

// Until all have ended, or for so long.
void wait_for_ends(const std::vector<ProcessFacts>& processes, double secs) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(secs);
  for (const ProcessFacts& process : processes) {
    const int fd = process_end_descriptor(process.pid);
    if (fd < 0) continue;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd watched{fd, POLLIN, 0};
    if (is_alive(process)) ::poll(&watched, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    ::close(fd);
  }
}

Json json_of(const ProcessFacts& process) {
  return {{"pid", process.pid}, {"command", process.command}};
}

}  // namespace

std::optional<ProcessFacts> process_in(const fs::path& file, const char* ticks_field) {
  try {
    const Json record = read_json(file, kMostProcessRecordBytes);
    if (!record.is_object() || record.value("state", Json("")) == Json("ended")) return std::nullopt;
    const auto pid = record.find("pid"), ticks = record.find(ticks_field);
    if (pid == record.end() || ticks == record.end() || !pid->is_number_unsigned() || !ticks->is_number_unsigned())
      return std::nullopt;
    std::optional<ProcessFacts> facts = process_facts(static_cast<pid_t>(pid->get<uint64_t>()));
    return facts && facts->start_ticks == ticks->get<uint64_t>() ? facts : std::nullopt;
  } catch (const Error& error) {  // none, or one that makes no sense: nothing is ended for it
    if (system_refused(error)) throw;
    return std::nullopt;
  }
}

std::vector<StartedProgram> started_programs(const fs::path& home) {
  const std::vector<ProcessFacts> all = own_processes();
  std::vector<StartedProgram> programs;
  add_programs(home / "sessions", "debug session", "session.json", "process_start_ticks", all, programs);
  add_programs(home / "runs", "recorded run", "process.json", "start_ticks", all, programs);
  std::sort(programs.begin(), programs.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return programs;
}

std::vector<std::string> known_frameworks() {
  std::vector<std::string> names;
  for (const auto& [name, files] : framework_files()) names.push_back(name);
  return names;
}

std::vector<FrameworkProcess> processes_with(const std::vector<std::string>& frameworks) {
  for (const std::string& framework : frameworks)
    if (!framework_files().contains(framework)) {
      const std::vector<std::string> near = nearest_names(framework, known_frameworks(), 1);
      fail(Code::kUsage, "kill-all", "the framework '" + framework + "' is not known",
           {.expected = fmt::format("{}", fmt::join(known_frameworks(), ", ")),
            .hint = near.empty() ? "torch" : near[0]});
    }
  std::vector<FrameworkProcess> found;
  for (const ProcessFacts& process : own_processes())
    if (std::vector<std::string> loaded = loaded_frameworks(process.pid, frameworks); !loaded.empty())
      found.push_back({process, std::move(loaded)});
  return found;
}

EndedProcesses end_processes(const std::vector<ProcessFacts>& processes, double grace_secs) {
  std::vector<ProcessFacts> told;
  for (const ProcessFacts& process : processes)
    if (send_signal(process, SIGTERM)) {
      send_signal(process, SIGCONT);  // one that is stopped would hear it only when it goes on
      told.push_back(process);
    }
  wait_for_ends(told, grace_secs);
  EndedProcesses ended;
  std::vector<ProcessFacts> stubborn;
  for (const ProcessFacts& process : told)
    if (send_signal(process, SIGKILL))
      stubborn.push_back(process);
    else
      ended.asked.push_back(process.pid);
  wait_for_ends(stubborn, kSecsToDie);
  for (const ProcessFacts& process : stubborn) (is_alive(process) ? ended.left : ended.killed).push_back(process.pid);
  return ended;
}

std::vector<ProcessFacts> all_processes(const StartedProgram& program) {
  std::vector<ProcessFacts> all{program.process};
  all.insert(all.end(), program.children.begin(), program.children.end());
  return all;
}

Json json_from(const StartedProgram& program) {
  Json json = json_of(program.process);
  json["kind"] = program.kind;
  json["id"] = program.id;
  json["children"] = Json::array();
  for (const ProcessFacts& child : program.children) json["children"].push_back(json_of(child));
  return json;
}

Json json_from(const FrameworkProcess& process) {
  Json json = json_of(process.process);
  json["frameworks"] = process.frameworks;
  return json;
}

Json json_from(const EndedProcesses& ended) {
  return {{"ended", ended.asked}, {"killed", ended.killed}, {"left", ended.left}};
}

}  // namespace lockstep
