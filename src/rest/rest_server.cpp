#include "rest/rest_server.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/platform/memory_maps.h"
#include "base/sha256.h"
#include "base/shown_json.h"
#include "base/thread.h"
#include "http/small_letters.h"
#include "rest/session_events.h"
#include "tensor/storage.h"

namespace lockstep {
namespace {

constexpr int64_t kQuietMs = 1000;
constexpr std::chrono::milliseconds kLooks{50}, kLooksWhileDrawing{250};  // each takes a core from what is drawn
constexpr int64_t kBetweenPicturesMs = 15000;

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
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

// Routes that somebody with an API key may call, and a page of an origin that is let in.
bool about_pictures(const std::string& path) {
  for (const char* start :
       {"/v1/images/", "/v1/models", "/v1/jobs", "/v1/events", "/v1/health", "/v1/openapi.json", "/metrics"})
    if (path.starts_with(start)) return true;
  return false;
}

class RestControl : public CallControl {
 public:
  RestControl(const std::atomic<bool>& stopping, std::string whose) : stopping_(stopping) { client = std::move(whose); }
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
  return in_small_letters(name);
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

constexpr const char* kBytes = "application/octet-stream";

// The bytes as they are; the rest of the answer goes before them, as a line of JSON.
HttpResponse bytes_response(const Operation& operation, Json answer) {
  const Json::binary_t bytes = answer[operation.binary].get_binary();
  answer.erase(operation.binary);
  HttpResponse response;
  response.type = kBytes;
  response.headers = {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}};
  response.body = shown_json(answer);
  // Numbers of four bytes can then be read where they lie.
  response.body.append(3 - response.body.size() % 4, ' ');
  response.body += '\n';
  response.body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return response;
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

HttpResponse error_response(Code code, const std::string& message, int status, const ErrorFacts& facts) {
  const size_t hint = message.rfind("; try ");
  const bool hinted = hint != std::string::npos;
  if (!status) status = status_of(code);
  const char* type = status == 401   ? "authentication_error"
                     : status == 403 ? "permission_error"
                     : status == 429 ? "rate_limit_error"
                     : status >= 500 ? "server_error"
                                     : "invalid_request_error";
  return json_response(status, {{"error",
                                 {{"code", facts.code.empty() ? std::string(code_name(code)) : facts.code},
                                  {"message", hinted ? message.substr(0, hint) : message},
                                  {"hint", hinted ? message.substr(hint + 6) : ""},
                                  {"type", facts.type.empty() ? type : facts.type},
                                  {"param", facts.parameter.empty() ? Json(nullptr) : Json(facts.parameter)}}}});
}

RestServer::RestServer(Service& service, const RestOptions& options)
    : service_(service),
      options_(options),
      page_(options.page_folder),
      http_(
          HttpLimits{}, [this](const HttpRequest& request) { return refused(request); },
          [this](const HttpRequest& request) { return answer(request); },
          [this](const HttpRequest& request, BodyReader& body) -> std::optional<HttpResponse> {
            if (request.path == "/v1/jobs") return answer_large(request, body);
            auto response = images_->with_body(request, body, client_of(request));
            if (response) last_used_ms_ = now_ms();
            return response ? std::optional(with_cors(request, std::move(*response))) : std::nullopt;
          }),
      last_used_ms_(now_ms()) {
  images_ = std::make_unique<ImageApi>([&service]() -> Studio& { return service.studio(); }, http_.hub());
}

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
  if (active_ > 0 || service_.sessions().live() > 0 || service_.drawing() || http_.hub().connections() > 0)
    return false;
  return static_cast<double>(now_ms() - last_used_ms_) / 1000 > options_.idle_secs;
}

void RestServer::watch() {
  int64_t given_back_ms = now_ms(), drawn_ms = given_back_ms - kBetweenPicturesMs;
  while (!ended_) {
    if (!stopping_ && ((options_.interrupted && options_.interrupted()) || has_been_idle())) stopping_ = true;
    // Again and again: whoever stops a server before it has begun to listen would not be heard.
    if (stopping_) http_.stop();
    // What large calls have freed goes back to the system once nobody is served; the allocator alone would keep it. The
    // next picture needs what the last one did, so between pictures it stays for longer.
    const int64_t now = now_ms();
    const bool drawing = service_.drawing();
    if (drawing) drawn_ms = now;
    const int64_t used_ms = std::max(last_used_ms_.load(), drawn_ms);
    if (active_ == 0 && used_ms > given_back_ms && now - last_used_ms_ > kQuietMs &&
        now - drawn_ms > kBetweenPicturesMs) {
      release_cached_memory();
      give_back_freed_memory();
      given_back_ms = now;
    }
    std::this_thread::sleep_for(drawing ? kLooksWhileDrawing : kLooks);
  }
}

// Never by a name that somebody else's DNS can give to this machine: loopback names, and where the server was told to
// listen elsewhere, that address, this machine's own name, and numbers.
bool RestServer::own_name(const std::string& authority) const {
  std::string name = in_small_letters(authority);
  const std::string port = ":" + std::to_string(port_);
  if (name.ends_with(port)) name.resize(name.size() - port.size());
  if (name == "127.0.0.1" || name == "localhost" || name == "[::1]") return true;
  if (is_loopback(options_.host)) return false;
  return name == options_.host || name == own_host_name() || is_address(name);
}

bool RestServer::allowed_origin(const HttpRequest& request) const {
  return about_pictures(request.path) && request.header_count("origin") == 1 &&
         std::find(options_.origins.begin(), options_.origins.end(), request.header("origin")) !=
             options_.origins.end();
}

HttpResponse RestServer::with_cors(const HttpRequest& request, HttpResponse response) const {
  if (!allowed_origin(request)) return response;
  response.headers["Access-Control-Allow-Origin"] = request.header("origin");
  response.headers["Vary"] = "Origin";
  return response;
}

std::string RestServer::client_of(const HttpRequest& request) const {
  const std::string given = request.header("authorization");
  for (size_t i = 0; i < options_.api_keys.size(); ++i)
    if (given == "Bearer " + options_.api_keys[i]) return "key" + std::to_string(i) + "@" + request.address;
  return "owner@" + request.address;
}

std::optional<HttpResponse> RestServer::refused_by_name(const HttpRequest& request) const {
  if (request.header_count("host") != 1 || !own_name(request.header("host")))
    return error_response(Code::kUsage, "[http] the Host header names another server; try http://127.0.0.1:PORT", 403);
  if (const std::string origin = request.header("origin"); request.header_count("origin") > 0) {
    const std::string http = "http://", from = origin.starts_with(http) ? origin.substr(http.size()) : "";
    // Elsewhere than on loopback the page must have come from the very place that it calls.
    const bool own = request.header_count("origin") == 1 && !from.empty() && own_name(from) &&
                     (is_loopback(options_.host) || from == request.header("host"));
    if (!own && !allowed_origin(request))
      return error_response(Code::kUsage, "[http] pages of other origins are refused", 403);
  }
  return std::nullopt;
}

std::optional<HttpResponse> RestServer::refused_by_key(const HttpRequest& request) {
  const std::string bearer = "Bearer ", given = request.header("authorization");
  if (page_.has(request)) return std::nullopt;  // for anybody: the token comes in the address's fragment
  const bool one = request.header_count("authorization") == 1 && given.starts_with(bearer);
  const std::string secret = one ? given.substr(bearer.size()) : std::string();
  bool keyed = false;
  for (const std::string& key : options_.api_keys) keyed |= same_secret(secret, key);
  if (one && keyed && !about_pictures(request.path))
    return error_response(Code::kUsage, "[http] an API key opens the picture routes only; try the token", 403);
  if (!(one && (keyed || same_secret(secret, options_.token))) && !images_->has_signed_link(request)) {
    HttpResponse response = error_response(
        Code::kUsage, "[http] the token is missing or wrong; try Authorization: Bearer with the text of service/token",
        401);
    response.headers["WWW-Authenticate"] = "Bearer";
    return response;
  }
  return std::nullopt;
}

std::optional<HttpResponse> RestServer::refused(const HttpRequest& request) {
  if (auto refusal = refused_by_name(request)) return refusal;
  if (request.method == "OPTIONS" && allowed_origin(request)) {  // a browser asks before it calls; it has no token yet
    HttpResponse response = with_cors(request, {});
    response.status = 204;
    response.headers["Access-Control-Allow-Methods"] = "GET, POST";
    response.headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type, Last-Event-ID";
    response.headers["Access-Control-Max-Age"] = "600";
    return response;
  }
  if (auto refusal = refused_by_key(request)) return refusal;
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
    if (const uint64_t most = body_limit(request, HttpLimits{}.body_bytes); static_cast<uint64_t>(*length) > most)
      return error_response(
          Code::kMemory, "[http] the body is too large; expected at most " + std::to_string(most >> 20) + " MiB", 413);
  }
  return std::nullopt;
}

HttpResponse RestServer::answer(const HttpRequest& request) {
  const Counted counted(active_);
  last_used_ms_ = now_ms();
  HttpResponse response;
  try {
    response = route(request);
  } catch (const std::exception& error) {
    response = image_error(error);
  }
  last_used_ms_ = now_ms();
  return with_cors(request, std::move(response));
}

HttpResponse RestServer::answer_large(const HttpRequest& request, BodyReader& body) {
  HttpRequest whole = request;
  try {
    whole.body = images_->read_body(body);
  } catch (const std::exception& error) {
    return image_error(error);
  }
  return answer(whole);
}

HttpResponse RestServer::route(const HttpRequest& request) {
  if (page_.has(request)) return page_.answer(request);
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
  if (auto response = images_->route(request)) return *response;
  const std::vector<RoutedOperation> found = operations_at(request.path);
  if (found.empty()) return error_response(Code::kNotFound, "[http] there is nothing here; try /v1/openapi.json");
  std::string allowed;
  for (const RoutedOperation& one : found) {
    const char* method = one.operation->reads ? "GET" : "POST";
    if (only(method)) return call(*one.operation, request, one.arguments);
    allowed += (allowed.empty() ? "" : ", ") + std::string(method);
  }
  return wrong_method(allowed.c_str());
}

HttpResponse RestServer::call(const Operation& operation, const HttpRequest& request, const Json& from_path) {
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
  if (!arguments.is_null() && !arguments.is_object())
    fail(Code::kBadInput, operation.name, "the arguments are no JSON object", {.got = arguments.type_name()});
  for (const auto& [name, value] : from_path.items()) arguments[name] = value;
  RestControl control(stopping_, client_of(request));
  control.longest_wait_secs = options_.longest_wait_secs;
  const auto called = [&] {
    if (operation.binary.empty() || request.header("accept") != kBytes)
      return json_response(200, service_.call(operation, arguments, control));
    return bytes_response(operation, service_.call_with_bytes(operation, arguments, control));
  };
  if (!takes_long(operation)) return called();
  const Counted counted(long_calls_);
  if (long_calls_ > options_.most_long_calls) return too_many();
  return called();
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
  return session_events(http_.hub(), service_.sessions().find(spec), after);
}

}  // namespace lockstep
