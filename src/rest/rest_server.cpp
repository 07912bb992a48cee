#include "rest/rest_server.h"

#include <arpa/inet.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/escape.h"
#include "base/shown_json.h"
#include "base/thread.h"
#include "tensor/storage.h"

namespace lockstep {
namespace {

constexpr int64_t kQuietMs = 1000;

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// As long for a wrong token as for a right one.
bool same_secret(const std::string& given, const std::string& secret) {
  unsigned char difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size() && !secret.empty(); ++i)
    difference |= static_cast<unsigned char>(given[i] ^ secret[i % secret.size()]);
  return difference == 0 && !secret.empty();
}

int status_of(Code code) {
  switch (code) {
    case Code::kUsage:
    case Code::kBadInput:
    case Code::kCorrupt:
      return 400;
    case Code::kNotFound:
      return 404;
    case Code::kConflict:
    case Code::kCancelled:
      return 409;
    case Code::kMemory:
      return 413;
    case Code::kUnsupported:
    case Code::kIo:
    case Code::kDevice:
      return 422;
    case Code::kInternal:
      return 500;
  }
  return 500;
}

class RestControl : public CallControl {
 public:
  explicit RestControl(const std::atomic<bool>& stopping) : stopping_(stopping) {}
  bool cancelled() const override { return stopping_ || client_gone(); }

 private:
  const std::atomic<bool>& stopping_;
};

bool is_address(const std::string& name) {
  in_addr four;
  in6_addr six;
  const bool bracketed = name.size() > 2 && name.front() == '[' && name.back() == ']';
  return bracketed ? ::inet_pton(AF_INET6, name.substr(1, name.size() - 2).c_str(), &six) == 1
                   : ::inet_pton(AF_INET, name.c_str(), &four) == 1;
}

std::string own_host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return {};
  std::string small = name;
  std::transform(small.begin(), small.end(), small.begin(), [](unsigned char c) { return std::tolower(c); });
  return small;
}

Json arguments_from_query(const Operation& operation, const HttpRequest& request) {
  Json arguments = Json::object();
  for (const auto& [name, value] : request.query) {
    const auto argument = std::find_if(operation.arguments.begin(), operation.arguments.end(),
                                       [&name = name](const Argument& a) { return a.name == name; });
    if (argument == operation.arguments.end()) {
      arguments[name] = value;  // refused below, with the nearest name
      continue;
    }
    const Json parsed = value_from_text(operation, *argument, value);
    const bool several = argument->type == ArgumentType::kTextList || argument->type == ArgumentType::kTextMap;
    if (!arguments.contains(name))
      arguments[name] = parsed;
    else if (argument->type == ArgumentType::kTextList)
      arguments[name].push_back(parsed[0]);
    else if (several)
      arguments[name].update(parsed);
    else
      fail(Code::kBadInput, operation.name, "argument '" + name + "' is given twice");
  }
  return arguments;
}

std::optional<int64_t> length_of(const std::string& text) {
  int64_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || length < 0) return std::nullopt;
  return length;
}

bool takes_long(const Operation& operation) {
  return operation.slow || std::any_of(operation.arguments.begin(), operation.arguments.end(),
                                       [](const Argument& argument) { return argument.name == "max_wait"; });
}

HttpResponse too_many() {
  HttpResponse busy = error_response(Code::kConflict, "[http] too many calls are waiting; try again in a second", 503);
  busy.headers["Retry-After"] = "1";
  return busy;
}

// Counts a call for as long as it lasts.
struct Counted {
  explicit Counted(std::atomic<int>& counter) : counter_(counter) { ++counter_; }
  ~Counted() { --counter_; }
  std::atomic<int>& counter_;
};

}  // namespace

bool is_loopback(const std::string& host) {
  return host == "127.0.0.1" || host == "localhost" || host == "::1";
}

HttpResponse json_response(int status, const Json& body) {
  HttpResponse response;
  response.status = status;
  response.body = shown_json(body);
  response.headers = {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}};
  return response;
}

HttpResponse error_response(Code code, const std::string& message, int status) {
  const size_t hint = message.rfind("; try ");
  const bool hinted = hint != std::string::npos;
  return json_response(status ? status : status_of(code), {{"error",
                                                            {{"code", code_name(code)},
                                                             {"message", hinted ? message.substr(0, hint) : message},
                                                             {"hint", hinted ? message.substr(hint + 6) : ""}}}});
}

RestServer::RestServer(Service& service, const RestOptions& options)
    : service_(service),
      options_(options),
      http_(
          HttpLimits{}, [this](const HttpRequest& request) { return refused(request); },
          [this](const HttpRequest& request) { return answer(request); }),
      last_used_ms_(now_ms()) {}

RestServer::~RestServer() {
  stopping_ = ended_ = true;
  if (watching_.joinable()) watching_.join();
}

int RestServer::bind() {
  port_ = http_.bind(options_.host, options_.port);
  watching_ = start_thread("serve", [this] { watch(); });
  return port_;
}

void RestServer::run() {
  const bool done = stopping_ || http_.run();
  const bool asked = stopping_.exchange(true);
  ended_ = true;
  if (watching_.joinable()) watching_.join();
  if (!done && !asked) fail(Code::kIo, "serve", "the system takes no more connections for us");
}

void RestServer::stop() {
  stopping_ = true;
  http_.stop();
}

bool RestServer::has_been_idle() const {
  if (options_.idle_secs <= 0) return false;
  std::error_code error;
  if (!fs::exists(service_.home(), error)) return true;  // its folder was removed: nobody can call
  if (active_ > 0 || service_.sessions().live() > 0) return false;
  return static_cast<double>(now_ms() - last_used_ms_) / 1000 > options_.idle_secs;
}

void RestServer::watch() {
  int64_t given_back_ms = now_ms();
  while (!ended_) {
    if (!stopping_ && ((options_.interrupted && options_.interrupted()) || has_been_idle())) stopping_ = true;
    // Again and again: whoever stops a server before it has begun to listen would not be heard.
    if (stopping_) http_.stop();
    // What large calls have freed goes back to the system once nobody is served; the allocator alone would keep it.
    if (active_ == 0 && last_used_ms_ > given_back_ms && now_ms() - last_used_ms_ > kQuietMs) {
      release_cached_memory();
      ::malloc_trim(0);
      given_back_ms = now_ms();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// Never by a name that somebody else's DNS can give to this machine: loopback names, and where the server was told to
// listen elsewhere, that address, this machine's own name, and numbers.
bool RestServer::own_name(const std::string& authority) const {
  std::string name = authority;
  const std::string port = ":" + std::to_string(port_);
  if (name.ends_with(port)) name.resize(name.size() - port.size());
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name == "127.0.0.1" || name == "localhost" || name == "[::1]") return true;
  if (is_loopback(options_.host)) return false;
  return name == options_.host || name == own_host_name() || is_address(name);
}

std::optional<HttpResponse> RestServer::refused(const HttpRequest& request) {
  if (request.header_count("host") != 1 || !own_name(request.header("host")))
    return error_response(Code::kUsage, "[http] the Host header names another server; try http://127.0.0.1:PORT", 403);
  if (const std::string origin = request.header("origin"); request.header_count("origin") > 0) {
    const std::string http = "http://", from = origin.starts_with(http) ? origin.substr(http.size()) : "";
    // Elsewhere than on loopback the page must have come from the very place that it calls.
    if (request.header_count("origin") != 1 || from.empty() || !own_name(from) ||
        (!is_loopback(options_.host) && from != request.header("host")))
      return error_response(Code::kUsage, "[http] pages of other origins are refused", 403);
  }
  const std::string bearer = "Bearer ", given = request.header("authorization");
  if (request.header_count("authorization") != 1 || !given.starts_with(bearer) ||
      !same_secret(given.substr(bearer.size()), options_.token)) {
    HttpResponse response = error_response(
        Code::kUsage, "[http] the token is missing or wrong; try Authorization: Bearer with the text of service/token",
        401);
    response.headers["WWW-Authenticate"] = "Bearer";
    return response;
  }
  if (request.header_count("range") > 0) return error_response(Code::kBadInput, "[http] no ranges are served", 400);
  if (request.header_count("transfer-encoding") > 0 || request.header_count("content-encoding") > 0)
    return error_response(Code::kBadInput, "[http] a body comes plain and with its length", 411);
  if (request.method == "TRACE" || request.method == "CONNECT")
    return error_response(Code::kUsage, "[http] no such method here", 405);
  const bool has_body = request.method != "GET" && request.method != "HEAD" && request.method != "OPTIONS";
  // A DELETE without a body has no length either, and the library would wait for the body's end.
  if (request.method == "DELETE" && request.header_count("content-length") == 0) return answer(request);
  if (has_body) {
    const auto length = length_of(request.header("content-length"));
    if (request.header_count("content-length") != 1 || !length)
      return error_response(Code::kBadInput, "[http] Content-Length is missing, or no number", 411);
    if (*length > static_cast<int64_t>(HttpLimits{}.body_bytes))
      return error_response(Code::kMemory, "[http] the body is too large; expected at most 4 MiB", 413);
  }
  return std::nullopt;
}

HttpResponse RestServer::answer(const HttpRequest& request) {
  const Counted counted(active_);
  last_used_ms_ = now_ms();
  HttpResponse response;
  try {
    response = route(request);
  } catch (const Error& error) {
    response = error_response(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    response = error_response(Code::kMemory, "[http] not enough memory for this; try a smaller request");
  } catch (const std::exception& error) {
    response = error_response(Code::kInternal, std::string("[http] ") + error.what() + "; this is a bug of ours");
  }
  last_used_ms_ = now_ms();
  return response;
}

HttpResponse RestServer::route(const HttpRequest& request) {
  if (const auto mounted = mounts_.find(request.path); mounted != mounts_.end())
    return call_mounted(mounted->second, request);
  const auto only = [&](const char* method) {
    if (request.method == method || (request.method == "HEAD" && method == std::string("GET"))) return true;
    return false;
  };
  const auto wrong_method = [&](const char* allowed) {
    HttpResponse response =
        error_response(Code::kUsage, std::string("[http] only ") + allowed + " is possible here", 405);
    response.headers["Allow"] = allowed;
    return response;
  };
  if (request.path == "/v1/openapi.json") {
    if (!only("GET")) return wrong_method("GET");
    return json_response(200, openapi_document());
  }
  if (request.path == "/v1/health") {
    if (!only("GET")) return wrong_method("GET");
    return json_response(200, {{"name", "lockstep"},
                               {"version", LOCKSTEP_VERSION},
                               {"home", service_.home().string()},
                               {"live_sessions", service_.sessions().live()},
                               {"long_calls", long_calls_.load()}});
  }
  if (request.path == "/v1/debug/events") {
    if (!only("GET")) return wrong_method("GET");
    return stream_events(request);
  }
  const std::string start = "/v1/";
  const Operation* operation = request.path.starts_with(start) && request.path.find('_') == std::string::npos
                                   ? find_operation(request.path.substr(start.size()))
                                   : nullptr;
  if (!operation || joined_name(*operation, '/') != request.path.substr(start.size()))
    return error_response(Code::kNotFound, "[http] there is nothing here; try /v1/openapi.json");
  if (!only(operation->reads ? "GET" : "POST")) return wrong_method(operation->reads ? "GET" : "POST");
  return call(*operation, request);
}

HttpResponse RestServer::call(const Operation& operation, const HttpRequest& request) {
  Json arguments;
  if (operation.reads) {
    arguments = arguments_from_query(operation, request);
  } else {
    std::string type = request.header("content-type");
    type = type.substr(0, type.find(';'));
    if (!request.body.empty() && type != "application/json")
      return error_response(Code::kBadInput, "[http] the body is no application/json", 415);
    if (!request.query.empty())
      fail(Code::kBadInput, operation.name, "the arguments belong into the body, not into the address");
    if (!request.body.empty()) arguments = parse_json(request.body, "the body");
  }
  RestControl control(stopping_);
  control.longest_wait_secs = options_.longest_wait_secs;
  if (!takes_long(operation)) return json_response(200, service_.call(operation, arguments, control));
  const Counted counted(long_calls_);
  if (long_calls_ > options_.most_long_calls) return too_many();
  return json_response(200, service_.call(operation, arguments, control));
}

// Any of its calls may wait, and an answer in pieces lasts longer than the handler.
HttpResponse RestServer::call_mounted(const HttpServer::Handler& handler, const HttpRequest& request) {
  auto counted = std::make_shared<Counted>(long_calls_);
  if (long_calls_ > options_.most_long_calls) return too_many();
  HttpResponse response = handler(request);
  if (response.stream)
    response.stream = [this, counted, stream = response.stream](std::string& piece) {
      last_used_ms_ = now_ms();
      return stream(piece);
    };
  return response;
}

HttpResponse RestServer::stream_events(const HttpRequest& request) {
  std::string spec;
  int64_t after = 0;
  for (const auto& [name, value] : request.query) {
    if (name == "session")
      spec = value;
    else if (name == "after" && length_of(value))
      after = *length_of(value);
    else
      fail(Code::kBadInput, "debug events", "the argument is not understood", {.expected = "session, after"});
  }
  if (const auto last = length_of(request.header("last-event-id"))) after = std::max(after, *last);
  const auto session = service_.sessions().find(spec);
  auto counted = std::make_shared<Counted>(long_calls_);
  if (long_calls_ > options_.most_long_calls) return too_many();
  HttpResponse response;
  response.type = "text/event-stream";
  response.headers = {{"Cache-Control", "no-store"}};
  response.stream = [this, session, counted, after](std::string& piece) mutable {
    last_used_ms_ = now_ms();
    const bool live = session->live();  // before the look, so that what came with the end is not missed
    const std::vector<Json> fresh = session->events(after, 10, [this] { return stopping_ || client_gone(); });
    for (const Json& event : fresh) {
      after = event["number"].get<int64_t>();
      piece += "id: " + std::to_string(after) + "\nevent: " + escaped(event.value("event", std::string("message"))) +
               "\ndata: " + shown_json(event) + "\n\n";
    }
    if (fresh.empty()) piece = ": \n\n";  // shows a client that is gone
    return !stopping_ && !client_gone() && (live || !fresh.empty());
  };
  return response;
}

}  // namespace lockstep
