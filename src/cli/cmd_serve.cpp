// lockstep serve: REST and MCP over HTTP, and the service behind `lockstep debug`. lockstep mcp: the same over stdio.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "base/broken_pipe.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/number_text.h"
#include "base/strict_stream.h"
#include "base/text.h"
#include "base/token.h"
#include "capture/store.h"
#include "cli/app.h"
#include "cli/machine.h"
#include "cli/open_page.h"
#include "client/service_process.h"
#include "mcp/mcp_endpoint.h"
#include "rest/rest_server.h"
#include "service/machine_report.h"
#include "tensor/storage.h"

namespace lockstep {
namespace {

struct ServeArguments {
  std::string host = "127.0.0.1", token_file, web;
  int port = 0, ready = -1;
  double idle = 0;
  bool stop = false, open = false;
  std::vector<std::string> models, origins;
  std::string api_keys, device = "auto", memory, preview = "linear";
  int threads = 0, queue = 64, client_jobs = 32, client_pictures = 64;
  double keep_loaded = 600;
  int64_t batch_tokens = kBatchTokens;
};

// A secret that others can read is none.
std::string token_in(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0 && (status.st_mode & 077) != 0)
    fail(Code::kUsage, "serve", "others can read the token in " + file.string(), {.hint = "chmod 600"});
  return read_text(file, 4096);
}

std::string token_for(const ServeArguments& arguments) {
  std::string token;
  if (!arguments.token_file.empty()) token = token_in(arguments.token_file);
  if (const char* told = std::getenv("LOCKSTEP_TOKEN"); token.empty() && told) token = told;
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back()))) token.pop_back();
  if (!token.empty() && token.size() < 16)
    fail(Code::kUsage, "serve", "the token is too short", {.expected = "at least 16 characters"});
  if (!token.empty()) return token;
  if (!is_loopback(arguments.host) && arguments.api_keys.empty())
    fail(Code::kUsage, "serve", "others could reach " + arguments.host + ", and no token was chosen for them",
         {.hint = "--token-file FILE or --api-key FILE, or no --host"});
  return new_token();
}

// One key a line; others must not read the file.
std::vector<std::string> keys_in(const std::string& file) {
  std::vector<std::string> keys;
  if (file.empty()) return keys;
  std::istringstream lines = strict_text(token_in(file));
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    if (line.empty()) continue;
    if (line.size() < 16)
      fail(Code::kUsage, "serve", "an API key is too short", {.expected = "at least 16 characters"});
    keys.push_back(line);
  }
  if (keys.empty()) fail(Code::kUsage, "serve", file + " holds no API key", {.expected = "one a line"});
  return keys;
}

StudioOptions studio_options(const ServeArguments& arguments) {
  StudioOptions options;
  for (const std::string& text : arguments.models) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':';
    });
    if (equals == std::string::npos || name.empty() || name.size() > 100 || !plain)
      fail(Code::kUsage, "serve", "--model: \"" + text + "\" is no name and folder",
           {.expected = "NAME=DIR, with letters, digits and -_.: in the name"});
    options.models.emplace_back(name, fs::path(text.substr(equals + 1)));
  }
  options.device = arguments.device;
  options.threads = arguments.threads;
  options.keep_loaded_secs = arguments.keep_loaded;
  options.most_waiting = static_cast<size_t>(arguments.queue);
  options.most_client_jobs = static_cast<size_t>(arguments.client_jobs);
  options.most_client_pictures = static_cast<size_t>(arguments.client_pictures);
  options.batch_tokens = arguments.batch_tokens;
  options.vae_previews = arguments.preview == "vae";
  if (!arguments.memory.empty()) {
    const std::optional<uint64_t> limit = bytes_from_text(arguments.memory);
    if (!limit)
      fail(Code::kUsage, "serve", "--memory-limit is no number of bytes",
           {.expected = "a number with B, KB, MB or GB", .got = arguments.memory});
    options.memory_bytes = *limit;
    set_memory_limit(*limit);
  }
  return options;
}

// Every connection is a descriptor, and the usual limit of 1,024 is soon reached.
void allow_many_descriptors() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 16384);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

constexpr double kPatienceSecs = 15;  // whoever starts a service in the background waits 20 for it

// Two services of one home would start each other's sessions. One that ends, because it is older than the program or
// was idle, holds the home until it has ended: whoever was started in its place waits for that.
bool take_home(const fs::path& home, double patience_secs) {
  std::error_code error;
  fs::create_directories(home / "service", error);
  ::chmod((home / "service").c_str(), 0700);
  const int fd = ::open((home / "service" / "serving").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_secs);
  if (fd < 0)
    fail(Code::kIo, "serve",
         "cannot write in " + (home / "service").string() + ": " + (error ? error.message() : std::strerror(errno)),
         {.hint = "--home with a folder you may write to"});
  bool taken = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  while (!taken && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    taken = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  }
  return taken;  // held until the process ends, however it ends
}

// Another service has the home: its address is what the caller wants to know, unless one of his own was asked for.
void tell_of_running(const App& app, const fs::path& home, const ServeArguments& arguments) {
  const auto running = running_service(home);
  const std::string address =
      running ? fmt::format("http://{}:{}/v1 and /mcp", running->target.host, running->target.port) : "";
  const bool as_asked = running && arguments.token_file.empty() && arguments.host == running->target.host &&
                        (arguments.port == 0 || arguments.port == running->target.port);
  if (!as_asked)
    fail(Code::kConflict, "serve", "a service is running for " + home.string(),
         {.got = address, .hint = "lockstep serve --stop"});
  if (arguments.open) open_page(app, home, running->target);
  if (app.global.json)
    print_json({{"host", running->target.host}, {"port", running->target.port}, {"pid", running->pid}});
  else if (!app.global.quiet)
    print_error("lockstep: a service is running at {}; the token is in {}\n", address,
                (home / "service" / "token").string());
}

void serve(const App& app, const ServeArguments& arguments) {
  const fs::path home = fs::absolute(home_folder(app.global.home));
  if (arguments.stop) {
    const bool stopped = stop_service(home);
    if (!app.global.quiet) print_error("lockstep: {}\n", stopped ? "the service has stopped" : "no service runs");
    return;
  }
  RestOptions options;
  options.host = arguments.host == "localhost" ? "127.0.0.1" : arguments.host;
  options.port = arguments.port;
  options.api_keys = keys_in(arguments.api_keys);
  options.origins = arguments.origins;
  options.token = token_for(arguments);
  options.idle_secs = arguments.idle;
  options.interrupted = [] { return interrupted(); };
  options.page_folder = arguments.web;
  if (!take_home(home, arguments.ready >= 0 ? kPatienceSecs : 0)) return tell_of_running(app, home, arguments);
  serve_when_nobody_reads();
  set_machine_report(&doctor_json);
  allow_many_descriptors();
  Service service(home, studio_options(arguments));
  // What happens in sessions goes into the one stream of events too; what programs print is asked for.
  set_session_listener([&service](const std::string& session, const Json& event) {
    const std::string name = event.value("event", std::string());
    if (!name.empty() && name != "output") service.tell("debug." + name, {{"session", session}});
  });
  const struct StopTelling {
    ~StopTelling() { set_session_listener(nullptr); }
  } stop_telling;
  service.sessions().adopt_earlier();
  // Models that were named are opened now, so that a wrong one is told now; and jobs that waited wait again.
  std::error_code error;
  if (!arguments.models.empty() || fs::exists(home / "studio" / "jobs", error)) service.studio();
  RestServer server(service, options);
  McpServer mcp([&service](const Operation& operation, const Json& given, CallControl& control) {
    return service.call(operation, given, control);
  });
  McpEndpoint endpoint(mcp);
  server.mount("/mcp", [&endpoint](const HttpRequest& request) { return endpoint.answer(request); });
  const int port = server.bind();
  {
    const ServiceFiles files(home, options.host, port, options.token);
    if (arguments.ready >= 0) {
      if (::write(arguments.ready, "r", 1) != 1) print_error("lockstep: nobody waits for us\n");
      ::close(arguments.ready);
    }
    if (!app.global.quiet)
      print_error("lockstep: http://{}:{}/v1 and /mcp; the token is in {}\n", options.host, port,
                  (home / "service" / "token").string());
    if (arguments.open) open_page(app, home, {.host = options.host, .port = port, .token = options.token});
    server.run();
  }
  // Programs that live on do what they were told to do when we are gone; unwinding would end them.
  if (service.sessions().live() > 0) {
    std::fflush(nullptr);
    ::_exit(0);
  }
}

}  // namespace

void add_serve(App& app) {
  CLI::App* command = app.cli.add_subcommand("serve",
                                             "serve the browser page, the docs at /docs, OpenAI's image API, REST at "
                                             "/v1 and MCP at /mcp, on this machine only");
  command->footer(
      "lockstep serve --open\nlockstep serve --port 8700\nlockstep serve --port 8700 --model "
      "qwen-image=/models/Qwen-Image\nlockstep serve --stop");
  auto arguments = std::make_shared<ServeArguments>();
  command->add_option("--port", arguments->port, "port; 0 for any")->check(CLI::Range(0, 65535))->capture_default_str();
  command->add_option("--host", arguments->host, "address to listen on; any but loopback needs a token")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command
      ->add_option("--token-file", arguments->token_file, "file with the token (default: LOCKSTEP_TOKEN, or a new one)")
      ->type_name("FILE");
  command
      ->add_option("--idle", arguments->idle, "stop after this many seconds without a call or a live program; 0: never")
      ->type_name("SECS")
      ->capture_default_str();
  command->add_flag("--open", arguments->open, "open the page in the browser");
  command->add_option("--web", arguments->web, "serve the page from this folder, for development")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory);
  command
      ->add_option("--model", arguments->models,
                   "a model folder and its name in requests; repeatable (default: the embedded models)")
      ->type_name("NAME=DIR");
  command
      ->add_option("--keep-loaded", arguments->keep_loaded,
                   "unload a model after this many idle seconds; 0: after each picture, -1: never")
      ->type_name("SECS")
      ->check(CLI::Range(-1.0, 1e9))
      ->capture_default_str();
  command
      ->add_option(
          "--memory-limit", arguments->memory,
          "memory for models and pictures together, such as 8GB; parts of models are swapped if they do not all fit "
          "(default: three quarters of the machine's)")
      ->type_name("BYTES");
  command->add_option("--device", arguments->device, "auto, cpu, cuda, cuda:N, mlx or reference")
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "number of threads; 0: all cores")->check(CLI::Range(0, 1024));
  command->add_option("--preview", arguments->preview, "linear (a map of latents to colors) or vae (decoded, small)")
      ->check(CLI::IsMember({"linear", "vae"}))
      ->capture_default_str();
  command
      ->add_option("--batch-tokens", arguments->batch_tokens,
                   "most image tokens (16x16 pixels each) per batch; 0: no batches")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--queue", arguments->queue, "jobs that may wait")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--client-jobs", arguments->client_jobs, "jobs that one client may queue")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--client-pictures", arguments->client_pictures, "pictures of one client that may wait")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command
      ->add_option("--api-key", arguments->api_keys,
                   "file with API keys, one per line; they open only the picture routes")
      ->type_name("FILE");
  command->add_option("--allow-origin", arguments->origins, "allow web pages of this origin to call the picture routes")
      ->type_name("ORIGIN");
  command->add_flag("--stop", arguments->stop, "stop the running service");
  command->add_option("--ready-fd", arguments->ready, "")->group("");
  command->callback([&app, arguments] { serve(app, *arguments); });
}

void add_mcp(App& app) {
  CLI::App* command =
      app.cli.add_subcommand("mcp", "serve the Model Context Protocol for AI agents, on stdin and stdout");
  command->footer("lockstep mcp");
  command->callback([&app] {
    const fs::path home = home_folder(app.global.home);
    McpServer server([home](const Operation& operation, const Json& given, CallControl& control) {
      const Json arguments = with_callers_view(operation, given);
      checked_arguments(operation, arguments);
      return call_service(ensure_service(home), operation, arguments, control);
    });
    serve_when_nobody_reads();
    app.status = serve_mcp_stdio(server);
  });
}

}  // namespace lockstep
