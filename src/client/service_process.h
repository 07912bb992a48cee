// The service as a process of its own: where it listens is in a file of the home folder that its user alone can read,
// and whoever needs it starts it.
#pragma once
#include <optional>

#include "http/http_client.h"
#include "service/service.h"

namespace lockstep {

struct ServiceProcess {
  pid_t pid = 0;
  HttpTarget target;
};

// <home>/service/service.json and <home>/service/token, for as long as this object lives.
class ServiceFiles {
 public:
  ServiceFiles(const fs::path& home, const std::string& host, int port, const std::string& token);
  ~ServiceFiles();

 private:
  fs::path folder_;
};

std::optional<ServiceProcess> running_service(const fs::path& home);  // that answers
ServiceProcess ensure_service(const fs::path& home);                  // started where none runs
bool stop_service(const fs::path& home);                              // false: none runs

// A call of the service as the command line and MCP over stdio make it; errors come back as they were thrown. A wait is
// made of shorter ones, so that it can be as long as asked for.
Json call_service(const ServiceProcess& service, const Operation& operation, const Json& arguments,
                  CallControl& control);

// Events of a route as they come, each with its topic, until `use` says false, `cancelled` says true or nothing more
// can come; an empty topic: the stream stands. False: the service does not answer.
bool follow_events(const ServiceProcess& service, const std::string& route,
                   const std::function<bool(const std::string& topic, const Json& event)>& use,
                   const std::function<bool()>& cancelled);
// What happens in a session after event number `after`, each as it comes, until `use` says false, `cancelled` says true
// or nothing more can come. False: the service does not answer.
bool follow_session(const ServiceProcess& service, const std::string& session, int64_t after,
                    const std::function<bool(const Json& event)>& use, const std::function<bool()>& cancelled);

}  // namespace lockstep
