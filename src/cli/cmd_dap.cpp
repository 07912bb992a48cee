// lockstep dap: the Debug Adapter Protocol over the sessions of the service, for editors.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/broken_pipe.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "capture/store.h"
#include "cli/app.h"
#include "cli/cmd_dap.h"
#include "client/service_process.h"
#include "dap/adapter.h"

namespace lockstep {
namespace {

// The service that was found is asked again and again; only where it has gone is it looked for anew.
class KnownService {
 public:
  explicit KnownService(fs::path home) : home_(std::move(home)) {}

  ServiceProcess get() {
    const std::lock_guard lock(mutex_);
    if (!known_) known_ = ensure_service(home_);
    return *known_;
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    known_.reset();
  }
  // Whether the session was followed through another service before.
  bool changed_hands(const std::string& session, pid_t holder) {
    const std::lock_guard lock(mutex_);
    const pid_t before = std::exchange(holders_[session], holder);
    return before != 0 && before != holder;
  }

 private:
  fs::path home_;
  std::mutex mutex_;
  std::optional<ServiceProcess> known_;
  std::map<std::string, pid_t> holders_;  // of sessions that are followed
};

Json call_known(KnownService& service, const Operation& operation, const Json& given, CallControl& control) {
  const Json arguments = with_callers_view(operation, given);
  checked_arguments(operation, arguments);
  try {
    return call_service(service.get(), operation, arguments, control);
  } catch (const Error& error) {
    // Nobody answered: another service takes the session over, and what only reads can be asked of that one.
    if (error.code() != Code::kIo) throw;
    service.forget();
    if (!operation.reads) throw;
  }
  return call_service(service.get(), operation, arguments, control);
}

DapService dap_service(const std::shared_ptr<KnownService>& service) {
  DapService made;
  made.call = [service](const Operation& operation, const Json& given, CallControl& control) {
    return call_known(*service, operation, given, control);
  };
  made.follow = [service](const std::string& session, int64_t after, const std::function<bool(const Json&)>& use,
                          const std::function<bool()>& cancelled) {
    const ServiceProcess now = service->get();
    const int64_t from = service->changed_hands(session, now.pid) ? 0 : after;
    if (!follow_session(now, session, from, use, cancelled)) service->forget();
  };
  return made;
}

}  // namespace

void add_dap(App& app) {
  CLI::App* command =
      app.cli.add_subcommand("dap", "serve the Debug Adapter Protocol for editors, on stdin and stdout or on a port");
  command->footer("lockstep dap\nlockstep dap --port 0");
  auto port = std::make_shared<int>(-1);
  command
      ->add_option("--port", *port, "listen on this local port instead, for any number of clients; 0 for any free port")
      ->check(CLI::Range(0, 65535))
      ->type_name("PORT");
  command->callback([&app, port] {
    const DapService service = dap_service(std::make_shared<KnownService>(home_folder(app.global.home)));
    serve_when_nobody_reads();
    if (*port < 0) {
      app.status = serve_dap_stdio(service);
      return;
    }
    app.status = serve_dap_port(
        service, *port,
        [&app](int taken) {
          if (app.global.json)
            print_json({{"host", "127.0.0.1"}, {"port", taken}});
          else
            print("127.0.0.1:{}\n", taken);
          flush_output();
        },
        [] { return interrupted(); });
  });
}

}  // namespace lockstep
