#include "client/service_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/broken_pipe.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/platform/descriptors.h"
#include "base/platform/executable.h"
#include "base/platform/spawn.h"
#include "base/spawn_attributes.h"
#include "capture/store.h"

namespace lockstep {
namespace {

constexpr int kReadyDescriptor = 3;
constexpr double kStartSecs = 20;
constexpr double kIdleSecs = 600;
constexpr size_t kMostEventBytes = 8 << 20;

fs::path folder_in(const fs::path& home) {
  return fs::absolute(home) / "service";
}

// Ours alone from the first byte on.
void write_private(const fs::path& file, const std::string& text) {
  const fs::path fresh = file.string() + ".new";
  ::unlink(fresh.c_str());
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool ok = fd >= 0 && write_fully(fd, text);
  int reason = errno;
  if (fd >= 0) ::close(fd);
  if (ok && ::rename(fresh.c_str(), file.c_str()) == 0) return;
  if (ok) reason = errno;
  ::unlink(fresh.c_str());
  fail(Code::kIo, "serve", "cannot write " + file.string() + ": " + std::strerror(reason),
       {.hint = "--home with a folder you may write to"});
}

void make_private_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  const int reason = ::mkdir(folder.c_str(), 0700) == 0 ? 0 : errno;
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
    fail(Code::kIo, "serve",
         "cannot make the folder " + folder.string() + ": " + (error ? error.message() : std::strerror(reason)),
         {.hint = "--home with a folder you may write to"});
  if (status.st_uid != ::geteuid())
    fail(Code::kIo, "serve", folder.string() + " belongs to somebody else", {.hint = "another --home"});
  ::chmod(folder.c_str(), 0700);
}

// One at a time may look for a service and start it.
class StartLock {
 public:
  explicit StartLock(const fs::path& folder) {
    make_private_folder(folder);
    fd_ = ::open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd_ < 0)
      fail(Code::kIo, "serve", "cannot write in " + folder.string() + ": " + std::strerror(errno),
           {.hint = "--home with a folder you may write to"});
    ::flock(fd_, LOCK_EX);
  }
  ~StartLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  int fd_ = -1;
};

// Whether a service lives that has this home, answering or not.
bool is_held(const fs::path& folder) {
  const int fd = ::open((folder / "serving").c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0 && errno != ENOENT) fail(Code::kIo, "serve", (folder / "serving").string() + ": " + std::strerror(errno));
  if (fd < 0) return false;
  const bool held = ::flock(fd, LOCK_EX | LOCK_NB) != 0;
  ::close(fd);
  return held;
}

std::string service_program() {
  const fs::path program = own_program();
  return program.empty() ? "lockstep" : program.string();
}

// Changes when the program is built anew: an old service would not know new operations.
std::string own_version() {
  const ProgramFile file = own_program_file();
  return std::string(LOCKSTEP_VERSION) + " " + std::to_string(file.modified_secs) + "." +
         std::to_string(file.modified_nanosecs) + " " + std::to_string(file.bytes);
}

void start_service(const fs::path& home, const fs::path& folder) {
  int ends[2];
  if (make_pipe(ends) != 0) fail(Code::kIo, "serve", std::string("pipe: ") + std::strerror(errno));
  const std::string log = (folder / "service.log").string(), idle = std::to_string(kIdleSecs);
  std::vector<std::string> words{service_program(),
                                 "--home",
                                 fs::absolute(home).string(),
                                 "serve",
                                 "--idle",
                                 idle,
                                 "--ready-fd",
                                 std::to_string(kReadyDescriptor)};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kReadyDescriptor);
  short flags = POSIX_SPAWN_SETSID;  // a Ctrl-C at this terminal is not for it
  hand_on_only(actions, flags, kReadyDescriptor + 1, {});
  const SpawnAttributes attributes(flags);
  pid_t pid = -1;
  const int error =
      ::posix_spawn(&pid, words[0].c_str(), &actions, attributes.get(), argv.data(), environment_entries());
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error) {
    ::close(ends[0]);
    fail(Code::kIo, "serve", words[0] + ": " + std::strerror(error));
  }
  char byte = 0;
  pollfd watched{ends[0], POLLIN, 0};
  const bool told = ::poll(&watched, 1, static_cast<int>(kStartSecs * 1000)) > 0;
  const ssize_t n = told ? ::read(ends[0], &byte, 1) : 0;
  const int reason = errno;
  ::close(ends[0]);
  // Whether it is ready is not known: it may well run, and must not be waited for.
  if (n < 0) fail(Code::kIo, "serve", std::string("the service's pipe: ") + std::strerror(reason));
  const bool ready = n == 1;
  // One that another command had just begun to start was faster: ours found it running, and ended well.
  int status = 1;
  if (!ready && pid > 0 && (watched.revents & (POLLIN | POLLHUP)) && ::waitpid(pid, &status, 0) == pid &&
      WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return;
  if (!ready)
    fail(Code::kIo, "serve", "the service did not start:" + last_output(log, 5),
         {.hint = "lockstep serve, to see what is wrong"});
}

[[noreturn]] void rethrow(const HttpAnswer& answer) {
  const Json body = Json::parse(answer.body, nullptr, false);
  const Json error = body.is_object() ? body.value("error", Json::object()) : Json::object();
  const std::string code = error.value("code", std::string("internal"));
  std::string message = error.value("message", std::string("the service answered ") + std::to_string(answer.status));
  if (const std::string hint = error.value("hint", std::string()); !hint.empty()) message += "; try " + hint;
  for (const Code known : {Code::kUsage, Code::kBadInput, Code::kNotFound, Code::kCorrupt, Code::kUnsupported,
                           Code::kIo, Code::kMemory, Code::kDevice, Code::kCancelled, Code::kConflict})
    if (code_name(known) == code) throw Error(known, message);
  throw Error(Code::kInternal, message);
}

std::string percent_encoded(const std::string& text) {
  std::string out;
  for (const unsigned char c : text) {
    if (std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '~') {
      out += static_cast<char>(c);
    } else {
      char hex[4];
      std::snprintf(hex, sizeof hex, "%%%02X", c);
      out += hex;
    }
  }
  return out;
}

std::string query_from(const Json& arguments) {
  std::string query;
  for (const auto& [name, value] : arguments.items())
    query += (query.empty() ? "?" : "&") + name + "=" +
             percent_encoded(value.is_string() ? value.get<std::string>() : value.dump());
  return query;
}

// The operation's route, with the arguments that belong into it taken out of the rest.
std::string path_with(const Operation& operation, Json& rest) {
  std::string path = route_of(operation);
  for (size_t brace; (brace = path.find('{')) != std::string::npos;) {
    const size_t end = path.find('}', brace);
    const std::string name = path.substr(brace + 1, end - brace - 1);
    const std::string value = rest.contains(name) && rest[name].is_string() ? rest[name].get<std::string>() : "";
    if (value.empty()) fail(Code::kBadInput, operation.name, "argument '" + name + "' is missing");
    path.replace(brace, end - brace + 1, percent_encoded(value));
    rest.erase(name);
  }
  return path;
}

Json call_once(const ServiceProcess& service, const Operation& operation, const Json& arguments, CallControl& control) {
  Json rest = arguments.is_object() ? arguments : Json::object();
  const std::string path = path_with(operation, rest);
  const auto cancelled = [&] { return control.cancelled(); };
  const HttpAnswer answer = operation.reads
                                ? http_call(service.target, "GET", path + query_from(rest), {}, cancelled)
                                : http_call(service.target, "POST", path,
                                            rest.dump(-1, ' ', false, Json::error_handler_t::replace), cancelled);
  if (answer.status == 0) {
    if (control.cancelled()) fail(Code::kCancelled, operation.name, "cancelled");
    fail(Code::kIo, operation.name, "the service has gone: " + answer.error, {.hint = "again; it is started anew"});
  }
  if (answer.status != 200) rethrow(answer);
  return parse_json(answer.body, "the service's answer");
}

}  // namespace

ServiceFiles::ServiceFiles(const fs::path& home, const std::string& host, int port, const std::string& token)
    : folder_(folder_in(home)) {
  make_private_folder(folder_);
  write_private(folder_ / "token", token + "\n");
  try {
    write_private(
        folder_ / "service.json",
        Json{{"pid", ::getpid()}, {"host", host}, {"port", port}, {"version", own_version()}, {"started", utc_now()}}
            .dump(1));
  } catch (...) {
    ::unlink((folder_ / "token").c_str());
    ::unlink((folder_ / "open.html").c_str());
    throw;
  }
}

ServiceFiles::~ServiceFiles() {
  try {
    if (read_json(folder_ / "service.json", 1 << 16).value("pid", Json(0)) != Json(::getpid())) return;
  } catch (const Error& error) {
    if (!system_refused(error)) return;  // another one has taken over
    // What the file says cannot be known, but we hold the home: it is ours.
  } catch (const std::exception&) {
  }
  try {
    ::unlink((folder_ / "service.json").c_str());
    ::unlink((folder_ / "token").c_str());
    ::unlink((folder_ / "open.html").c_str());
  } catch (const std::exception&) {  // no memory: whoever finds them sees that nobody holds the home
  }
}

std::optional<ServiceProcess> running_service(const fs::path& home) {
  const fs::path folder = folder_in(home);
  try {
    const Json where = read_json(folder / "service.json", 1 << 16);
    ServiceProcess service;
    service.pid = where.at("pid").get<pid_t>();
    service.target.host = where.at("host").get<std::string>();
    if (service.target.host == "0.0.0.0") service.target.host = "127.0.0.1";
    service.target.port = where.at("port").get<int>();
    service.target.token = read_text(folder / "token", 1000);
    while (!service.target.token.empty() && service.target.token.back() == '\n') service.target.token.pop_back();
    service.target.timeout_secs = 5;
    const HttpAnswer health = http_call(service.target, "GET", "/v1/health");
    if (health.status != 200) return std::nullopt;
    // A program built since then may know more; but live sessions are worth more than new operations.
    const Json body = Json::parse(health.body, nullptr, false);
    if (where.value("version", std::string()) != own_version() && body.is_object() &&
        body.value("live_sessions", Json(1)) == Json(0)) {
      ::kill(service.pid, SIGTERM);
      return std::nullopt;
    }
    service.target.timeout_secs = 3600;
    return service;
  } catch (const Error& error) {  // no file, or not one of ours
    if (system_refused(error)) throw;
    return std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

ServiceProcess ensure_service(const fs::path& home) {
  const StartLock lock(folder_in(home));
  if (const auto service = running_service(home)) return *service;
  start_service(home, folder_in(home));
  if (const auto service = running_service(home)) return *service;
  fail(Code::kIo, "serve", "the service was started and does not answer", {.hint = "lockstep serve, to see why"});
}

bool stop_service(const fs::path& home) {
  const StartLock lock(folder_in(home));
  auto service = running_service(home);
  // One that starts or ends holds the home for a moment.
  for (int i = 0; !service && is_held(folder_in(home)); ++i) {
    if (i == 500)
      fail(Code::kIo, "serve", "a service holds " + home.string() + " and does not answer", {.hint = "again"});
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    service = running_service(home);
  }
  if (!service) return false;
  ::kill(service->pid, SIGTERM);
  for (int i = 0; i < 1000 && ::kill(service->pid, 0) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return true;
}

Json call_service(const ServiceProcess& service, const Operation& operation, const Json& arguments,
                  CallControl& control) {
  const auto began = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(); };
  const Json asked = arguments.is_object() ? arguments.value("max_wait", Json(nullptr)) : Json(nullptr);
  const Operation* wait = find_operation("debug wait");
  const bool starts = operation.name == "debug start" && arguments.value("run", Json(false)) == Json(true);
  if (!asked.is_number() || (operation.result != wait->result && !starts))
    return call_once(service, operation, arguments, control);
  const double most = std::min(asked.get<double>(), control.longest_wait_secs);
  Json first = arguments;
  first["max_wait"] = std::min(most, 1.0);  // in between we tell how it goes
  Json result = call_once(service, operation, first, control);
  while (result.value("state", Json("")) == Json("running") && elapsed() < most && !control.cancelled()) {
    control.progress(elapsed(), "the program is running");
    result.erase("hint");  // it may be another one by then
    result.update(
        call_once(service, *wait, {{"session", result["id"]}, {"max_wait", std::min(most - elapsed(), 1.0)}}, control));
  }
  if (control.cancelled()) fail(Code::kCancelled, operation.name, "cancelled; the program runs on");
  return result;
}

bool follow_events(const ServiceProcess& service, const std::string& route,
                   const std::function<bool(const std::string& topic, const Json& event)>& use,
                   const std::function<bool()>& cancelled) {
  std::string rest;
  const auto field = [](const std::string& block, const std::string& name) -> std::optional<std::string> {
    const size_t at = block.starts_with(name) ? 0 : block.find("\n" + name);
    if (at == std::string::npos) return std::nullopt;
    const size_t from = block.find(name, at) + name.size();
    return block.substr(from, block.find('\n', from) - from);
  };
  const auto piece = [&](const std::string& bytes) {
    rest += bytes;
    for (size_t end; (end = rest.find("\n\n")) != std::string::npos; rest.erase(0, end + 2)) {
      const std::string block = rest.substr(0, end);
      const std::optional<std::string> data = field(block, "data: ");
      const bool more =
          data ? use(field(block, "event: ").value_or("message"), parse_json(*data, "an event of the service"))
               : use({}, nullptr);
      if (!more) return false;
    }
    return rest.size() < kMostEventBytes;
  };
  return http_stream(service.target, route, piece, cancelled).status == 200;
}

bool follow_session(const ServiceProcess& service, const std::string& session, int64_t after,
                    const std::function<bool(const Json& event)>& use, const std::function<bool()>& cancelled) {
  return follow_events(
      service,
      "/v1/debug/events?session=" + percent_encoded(session) + "&after=" + std::to_string(std::max<int64_t>(after, 0)),
      [&use](const std::string& topic, const Json& event) { return topic.empty() || use(event); }, cancelled);
}

}  // namespace lockstep
