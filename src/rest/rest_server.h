// The service over HTTP: /v1 from the operations table. Nobody gets in without the token, under another name than the
// server's own (DNS rebinding), or from a foreign page.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "http/http_server.h"
#include "rest/image_api.h"
#include "rest/page_files.h"
#include "service/service.h"

namespace lockstep {

struct RestOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // any
  std::string token;
  double idle_secs = 0;                    // stop when nothing was asked and no program lived for so long; 0: never
  double longest_wait_secs = 25;           // of one long-poll
  int most_long_calls = 32;                // waits and event streams at a time
  std::vector<std::string> api_keys = {};  // who has one may ask for pictures and nothing else
  std::vector<std::string> origins = {};   // pages elsewhere that may call the picture routes (CORS)
  std::function<bool()> interrupted = {};  // asked often; true: stop
  fs::path page_folder = {};               // serve the page from there, for work on it; empty: the embedded one
};

class RestServer {
 public:
  RestServer(Service& service, const RestOptions& options);
  ~RestServer();

  // Another protocol on the same server, behind the same guard: the MCP endpoint.
  void mount(const std::string& path, HttpServer::Handler handler) { mounts_[path] = std::move(handler); }

  int bind();  // the port. Everything that serving needs is there when it returns, or it throws
  void run();  // until stop(), or until it has been idle. Error{kIo}: the system takes no more connections
  void stop();
  bool stopping() const { return stopping_; }

 private:
  std::optional<HttpResponse> refused(const HttpRequest& request);
  HttpResponse answer(const HttpRequest& request);
  HttpResponse answer_large(const HttpRequest& request, BodyReader& body);
  HttpResponse route(const HttpRequest& request);
  HttpResponse call(const Operation& operation, const HttpRequest& request, const Json& from_path);
  std::optional<HttpResponse> refused_by_name(const HttpRequest& request) const;
  std::optional<HttpResponse> refused_by_key(const HttpRequest& request);
  std::string client_of(const HttpRequest& request) const;
  bool allowed_origin(const HttpRequest& request) const;
  HttpResponse with_cors(const HttpRequest& request, HttpResponse response) const;
  HttpResponse stream_events(const HttpRequest& request);
  HttpResponse call_mounted(const HttpServer::Handler& handler, const HttpRequest& request);
  bool own_name(const std::string& name) const;
  void watch();
  bool has_been_idle() const;

  Service& service_;
  RestOptions options_;
  PageFiles page_;
  std::map<std::string, HttpServer::Handler> mounts_;
  std::unique_ptr<ImageApi> images_;
  HttpServer http_;
  std::atomic<int> active_{0}, long_calls_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ended_{false};  // run() has returned, or will not be called
  std::atomic<int64_t> last_used_ms_{0};
  int port_ = 0;
  std::thread watching_;
};

bool is_loopback(const std::string& host);

HttpResponse json_response(int status, const Json& body);
// What an error says beside its message; empty: by its code and status.
struct ErrorFacts {
  std::string type, parameter, code;
};
HttpResponse error_response(Code code, const std::string& message, int status = 0,  // 0: by the code
                            const ErrorFacts& facts = {});

Json openapi_document();  // of the whole table

}  // namespace lockstep
