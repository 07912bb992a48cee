#include "capture/recorded_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <new>

#include "base/broken_pipe.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/platform/descriptors.h"
#include "base/platform/executable.h"
#include "base/platform/spawn.h"
#include "base/process.h"
#include "base/spawn_attributes.h"
#include "base/text.h"
#include "capture/ranks.h"
#include "capture/recording_tap.h"
#include "capture/run_folder.h"
#include "capture/run_lock.h"
#include "capture/run_reader.h"

namespace lockstep {
namespace {

int output_of(const RecordRequest& request) {
  return request.output_to_stderr ? STDERR_FILENO : STDOUT_FILENO;
}

// Without a run nothing is recorded; what is to be substituted still is.
Environment environment_for(const RecordRequest& request, const fs::path& run, const std::string& name) {
  Environment variables = request.environment.empty() ? current_environment() : request.environment;
  const auto set = [&](const char* variable, const std::string& value) {
    if (value.empty())
      variables.erase(variable);
    else
      variables[variable] = value;
  };
  set("LOCKSTEP_HOME", request.home.string());
  set("LOCKSTEP_RUN", run.string());
  set("LOCKSTEP_RECORD", run.empty() ? "0" : name);
  set("LOCKSTEP_RECORD_MODULES", request.record_modules ? "1" : "");
  set("LOCKSTEP_COVERAGE", request.coverage);
  set("LOCKSTEP_MODULES", request.modules);
  set("LOCKSTEP_FUNCTIONS", request.functions);
  set("LOCKSTEP_TAP", request.tap);
  set("LOCKSTEP_NO_TAP", request.no_tap);
  set("LOCKSTEP_STEPS", request.steps);
  set("LOCKSTEP_FULL", request.full);
  set("LOCKSTEP_BUDGET", request.budget);
  set("LOCKSTEP_INPUTS", request.inputs ? "1" : "");
  set("LOCKSTEP_STATS_ONLY", request.stats_only ? "1" : "");
  set("LOCKSTEP_OPERATIONS", request.operations);
  set("LOCKSTEP_OPERATIONS_AT", request.operations_at);
  set("LOCKSTEP_OPERATIONS_FEED", request.operations_feed);
  set("LOCKSTEP_OPERATIONS_END", request.operations_end ? "1" : "");
  // What torch.compile has made has no operations to see: it is run as it was written.
  if (!request.operations.empty()) variables.try_emplace("TORCH_COMPILE_DISABLE", "1");
  set("LOCKSTEP_REFERENCE", request.reference);
  set("LOCKSTEP_SUBSTITUTE", request.substitute);
  if (const fs::path library = capture_library(); !library.empty()) set("LOCKSTEP_LIBRARY", library.string());
  const std::string before = variables["PYTHONPATH"];
  const fs::path inject = python_package_folder() / "lockstep" / "inject";
  set("PYTHONPATH", inject.string() + (before.empty() ? "" : ":" + before));
  // Python writes each line to a terminal at once, and holds back what goes into a pipe or a file until the end. Our
  // pipe must not change that: only where it stands in for a terminal, or for nothing that the caller gave, is it told
  // not to.
  if (request.quiet || ::isatty(output_of(request))) variables.try_emplace("PYTHONUNBUFFERED", "1");
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    if (make_pipe(ends) != 0) fail(Code::kIo, "record", std::string("pipe: ") + std::strerror(errno));
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  void close_read() {
    if (read_end >= 0) ::close(read_end);
    read_end = -1;
  }
  void close_write() {
    if (write_end >= 0) ::close(write_end);
    write_end = -1;
  }
};

pid_t spawn(const std::vector<std::string>& command, const Environment& variables, const fs::path& cwd, const Pipe& out,
            const Pipe& err) {
  std::vector<std::string> arguments = command, entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out.write_end, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write_end, STDERR_FILENO);
  // A service's own sockets are not for the program: a client would wait for as long as it or a child of it lives.
  short flags = 0;
  hand_on_only(actions, flags, 3, {STDIN_FILENO});
  if (!cwd.empty()) posix_spawn_file_actions_addchdir_np(&actions, cwd.c_str());
  const SpawnAttributes attributes(flags);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, arguments[0].c_str(), &actions, attributes.get(), pointers(arguments).data(),
                                   pointers(entries).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error)
    fail(error == ENOENT ? Code::kNotFound : Code::kIo, "record", arguments[0] + ": " + std::strerror(error),
         {.hint = "a program on PATH, or --python for a .py file"});
  return pid;
}

// For whoever wants to end it later: the number alone may belong to another process by then. Best effort.
void remember_process(const fs::path& run, pid_t pid) {
  try {
    const Json process{{"pid", pid}, {"start_ticks", process_start_ticks(pid)}};
    write_atomically(run / "process.json", process.dump() + "\n");
  } catch (const Error&) {  // a full disk, say: the program runs all the same
  }
}

// Passes on and keeps what the program prints until it has ended. Returns waitpid's status.
int follow(pid_t pid, Pipe& out, Pipe& err, int log, RankWatch* ranks, const RecordRequest& request) {
  out.close_write();
  err.close_write();
  std::vector<pollfd> watched{{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}};
  const int targets[] = {output_of(request), STDERR_FILENO};
  int status = 0;
  bool ended = false;
  int told_to_end = 0;
  size_t last_stream = 0;
  bool in_line = false;
  char buffer[1 << 16];
  while (true) {
    if (!ended && request.cancelled && request.cancelled()) ::kill(pid, told_to_end++ < 20 ? SIGTERM : SIGKILL);
    // A grandchild may hold the pipe open for ever: once the program is gone, only what is already there is read.
    watched.resize(2);
    if (ranks) {
      ranks->look();
      for (const int descriptor : ranks->descriptors()) watched.push_back({descriptor, POLLIN, 0});
    }
    const bool silent = watched[0].fd < 0 && watched[1].fd < 0;  // the program is about to end
    const int ready = ::poll(watched.data(), watched.size(), ended ? 0 : silent ? 5 : 100);
    bool any = false;
    for (size_t i = 0; i < 2 && ready > 0; ++i) {
      if (watched[i].fd < 0 || !(watched[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
      const ssize_t n = ::read(watched[i].fd, buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        watched[i].fd = -1;
        continue;
      }
      any = true;
      const std::string_view printed(buffer, static_cast<size_t>(n));
      if (log >= 0) {  // where the disk is full, the program's run is worth more
        if (in_line && i != last_stream) write_fully(log, "\n");  // a line in the log is of one stream
        write_fully(log, printed);
        last_stream = i;
        in_line = printed.back() != '\n';
      }
      if (request.quiet || write_fully(targets[i], printed) || errno != EPIPE) continue;
      // Nobody reads it any more: the program meets that as it would without us.
      (i == 0 ? out : err).close_read();
      watched[i].fd = -1;
    }
    if (ended && !any) return status;
    if (!ended) {
      const bool closed = watched[0].fd < 0 && watched[1].fd < 0;
      pid_t waited;
      do waited = ::waitpid(pid, &status, closed && !request.cancelled && !(ranks && ranks->has_any()) ? 0 : WNOHANG);
      while (waited < 0 && errno == EINTR);
      ended = waited == pid;
    }
  }
}

// Modules that start a script, which is what the user would call the run.
bool is_launcher(const std::string& module) {
  return module == "torch.distributed.run" || module == "torch.distributed.launch" ||
         module == "accelerate.commands.launch";
}

std::string name_after(const std::vector<std::string>& argv) {
  std::string name;
  const bool python = fs::path(argv[0]).filename().string().starts_with("python");
  for (size_t i = 0; i < argv.size(); ++i) {
    const std::string& argument = argv[i];
    if (argument.ends_with(".py")) return fs::path(argument).stem().string();
    if (python && argument == "-m" && i + 1 < argv.size() && !is_launcher(argv[i + 1])) return argv[i + 1];
    if (name.empty()) name = fs::path(argument).filename().string();
  }
  return name;
}

// A new run's folder, held for as long as we watch its program.
struct WatchedRun {
  Store::NewRun made;
  RunFolder folder;
  RunLock lock{Keeper::kWatcher};

  WatchedRun(const Store& store, Json manifest) : made(store.create()), folder(made.path) {
    manifest["id"] = made.id;
    lock.acquire(made.path);
    folder.write_manifest(manifest);
    made.keep();
  }

  void discard() {
    lock.release();
    std::error_code ignored;
    fs::remove_all(made.path, ignored);
  }
};

std::unique_ptr<WatchedRun> begin_run(const Store& store, const Json& manifest, bool or_unrecorded, std::string& why) {
  try {
    return std::make_unique<WatchedRun>(store, manifest);
  } catch (const Error& error) {
    if (!or_unrecorded || error.code() != Code::kIo) throw;
    why = error.what();
    print_error("lockstep: the program runs unrecorded: {}\n", why);
    return nullptr;
  }
}

// Where there is no memory for words either, it goes on without.
void say(std::string_view what, std::string_view why = {}) noexcept {
  try {
    print_error("lockstep: {}{}{}\n", what, why.empty() ? "" : ": ", why);
  } catch (const std::exception&) {
  }
}

void make_latest(const Store& store, const std::string& name, const fs::path& run) {
  try {
    store.point_latest(name, run);
    store.archive_older(name, 1);
  } catch (const std::bad_alloc&) {
    say("[runs] the run is not the latest of its name: the system has no more memory to give");
  } catch (const std::exception& error) {
    // The program runs: an older run that stays where it is must not end its recording, nor must a lack of memory.
    say(error.what());
  }
}

void say_how_it_ended(const WatchedRun& run, RecordOutcome& outcome, int status, std::optional<int> first_lost) {
  recover_run(run.made.path);
  Json manifest = run.folder.manifest();
  if (const RankStates states = states_of_ranks(run.made.path, first_lost); !states.ranks.empty()) {
    outcome.world = states.world;
    outcome.failed_rank = states.failed;
    // A launcher may end well although one of its processes did not.
    if (states.failed && outcome.status == "finished") outcome.status = "failed";
    manifest["world"] = states.world;
    manifest["ranks"] = states.ranks;
    if (states.failed) manifest["failed_rank"] = {{"rank", *states.failed}, {"status", states.status}};
  }
  manifest["status"] = outcome.status;
  manifest["finished"] = utc_now();
  manifest["program"]["exit_code"] = outcome.exit_code;
  if (WIFSIGNALED(status)) manifest["program"]["signal"] = WTERMSIG(status);
  run.folder.write_manifest(manifest);
}

void end_run(WatchedRun& run, RecordOutcome& outcome, int status, std::optional<int> first_lost, bool or_unrecorded) {
  run.lock.release();
  outcome.run = run.made.path;
  outcome.id = run.made.id;
  try {
    say_how_it_ended(run, outcome, status, first_lost);
  } catch (const std::exception& error) {  // the disk is full by now: what the program did is not undone by that
    if (!or_unrecorded) throw;
    say("the run does not say how its program ended", error.what());
  }
  try {
    outcome.records = static_cast<int64_t>(Run::open_path(run.made.path).records().size());
  } catch (const std::exception& error) {
    if (!or_unrecorded) throw;
    say("the run cannot be read", error.what());
  }
}

}  // namespace

RecordOutcome record_program(const RecordRequest& request) {
  if (request.argv.empty())
    fail(Code::kUsage, "record", "no program to run", {.hint = "lockstep record -- python script.py"});
  // Before the program runs: it may take hours, and would find out only at its first tensor.
  if (!request.budget.empty() && !bytes_from_text(request.budget))
    fail(Code::kUsage, "record", "--budget is not a size",
         {.expected = "such as 500MB", .got = "'" + request.budget + "'"});
  steps_from_text(request.steps);
  std::vector<std::string> command = request.argv;
  if (command[0].ends_with(".py")) {
    const char* python = std::getenv("LOCKSTEP_PYTHON");
    const std::string told = !request.python.empty() ? request.python : python ? python : "";
    command.insert(command.begin(), told.empty() ? "python3" : told);
  }
  const std::string name = request.name.empty() ? name_after(request.argv) : request.name;
  const Store store(request.home);
  // Named before the new run exists: "latest" is then still the one the user means.
  RecordRequest resolved = request;
  if (!request.reference.empty()) resolved.reference = store.resolve(request.reference).string();
  Json manifest{{"format", "lockstep-run"},
                {"version", 1},
                {"id", nullptr},
                {"name", name},
                {"created", utc_now()},
                {"finished", nullptr},
                {"status", "running"},
                {"program",
                 {{"argv", command},
                  {"cwd", (request.cwd.empty() ? fs::current_path() : request.cwd).string()},
                  {"exit_code", nullptr}}}};
  merge_into(manifest, request.details);
  RecordOutcome outcome;
  const std::unique_ptr<WatchedRun> run = begin_run(store, manifest, request.or_unrecorded, outcome.not_recorded);
  const fs::path path = run ? run->made.path : fs::path();
  const int log = run ? ::open((path / "output.log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0666) : -1;
  int status = 0;
  std::optional<RankWatch> ranks;
  if (run) ranks.emplace(path);
  try {
    Pipe out, err;
    const pid_t pid = spawn(command, environment_for(resolved, path, name), request.cwd, out, err);
    if (run) make_latest(store, name, path);
    if (run) remember_process(path, pid);
    status = follow(pid, out, err, log, ranks ? &*ranks : nullptr, request);
    std::error_code ignored;
    if (run) fs::remove(path / "process.json", ignored);  // there is nothing to end any more
  } catch (...) {
    if (log >= 0) ::close(log);
    if (run) run->discard();  // nothing ran, so there is nothing to keep
    throw;
  }
  if (log >= 0) ::close(log);
  outcome.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  outcome.status = WIFSIGNALED(status) ? "killed" : outcome.exit_code == 0 ? "finished" : "failed";
  if (run) end_run(*run, outcome, status, ranks->first_lost(), request.or_unrecorded);
  return outcome;
}

}  // namespace lockstep
