#include "rest/image_api.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/shown_json.h"
#include "rest/event_stream.h"
#include "rest/image_answer.h"
#include "rest/image_form.h"
#include "rest/rest_server.h"
#include "studio/parameter_error.h"
#include "studio/wall_clock.h"

namespace lockstep {
namespace {

constexpr const char* kGenerations = "/v1/images/generations";
constexpr const char* kEdits = "/v1/images/edits";
constexpr int kMostLargeBodies = 6;  // at a time, in memory or on their way to disk
constexpr uint64_t kLargeBody = 4 << 20;

bool is_picture_id(std::string_view id) {
  return id.size() >= 30 && id.size() <= 48 && id.starts_with("img_") &&
         std::all_of(id.begin() + 4, id.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == '_'; });
}

// "/v1/images/ID/content" → ID
std::string picture_in(const std::string& path) {
  const std::string start = "/v1/images/", end = "/content";
  if (!path.starts_with(start) || !path.ends_with(end) || path.size() <= start.size() + end.size()) return {};
  const std::string id = path.substr(start.size(), path.size() - start.size() - end.size());
  return is_picture_id(id) ? id : std::string();
}

std::string query_value(const HttpRequest& request, const std::string& name) {
  const auto found = request.query.find(name);
  return found == request.query.end() || request.query.count(name) != 1 ? std::string() : found->second;
}

struct LargeBody {
  explicit LargeBody(std::atomic<int>& counter) : counter_(counter) { ++counter_; }
  ~LargeBody() { --counter_; }
  std::atomic<int>& counter_;
};

std::string read_whole(BodyReader& body) {
  std::string text;
  char buffer[64 << 10];
  while (body.left() > 0) {
    const size_t n = body.read(buffer, sizeof buffer);
    if (n == 0) fail(Code::kBadInput, "http", "the body did not arrive");
    text.append(buffer, n);
  }
  return text;
}

}  // namespace

uint64_t body_limit(const HttpRequest& request, uint64_t standard) {
  if (request.path == kEdits)
    return multipart_boundary(request.header("content-type")).empty() ? kMostJsonBodyBytes : kMostFormBodyBytes;
  if (request.path == kGenerations || request.path == "/v1/jobs") return kMostJsonBodyBytes;
  return standard;
}

HttpResponse image_error(const std::exception& error) {
  if (const auto* busy = dynamic_cast<const BusyError*>(&error)) {
    HttpResponse response =
        error_response(Code::kConflict, busy->what(), 429, {"rate_limit_error", "", busy->reason()});
    response.headers["Retry-After"] = std::to_string(busy->retry_secs());
    return response;
  }
  if (const auto* wrong = dynamic_cast<const ParameterError*>(&error))
    return error_response(wrong->code(), wrong->what(), 0, {"", wrong->parameter(), wrong->reason()});
  if (const auto* known = dynamic_cast<const Error*>(&error)) return error_response(known->code(), known->what());
  if (dynamic_cast<const std::bad_alloc*>(&error))
    return error_response(Code::kMemory, "[http] not enough memory for this; try a smaller request");
  return error_response(Code::kInternal, std::string("[http] ") + error.what() + "; internal error, please report it");
}

std::string ImageApi::read_body(BodyReader& body) {
  const LargeBody counted(large_bodies_);
  if (body.left() > kLargeBody && large_bodies_ > kMostLargeBodies)
    throw BusyError("[http] too many large requests are arriving; try again in a second", "too_many_requests", 1);
  return read_whole(body);
}

std::optional<HttpResponse> ImageApi::with_body(const HttpRequest& request, BodyReader& body,
                                                const std::string& client) {
  if (request.path != kGenerations && request.path != kEdits) return std::nullopt;
  try {
    const LargeBody counted(large_bodies_);
    if (body.left() > kLargeBody && large_bodies_ > kMostLargeBodies)
      throw BusyError("[http] too many large requests are arriving; try again in a second", "too_many_requests", 1);
    return read_and_draw(request, body, client);
  } catch (const std::exception& error) {
    return image_error(error);
  }
}

HttpResponse ImageApi::read_and_draw(const HttpRequest& request, BodyReader& body, const std::string& client) {
  if (!request.query.empty())
    fail(Code::kBadInput, "http", "the parameters belong into the body, not into the address");
  const std::string type = request.header("content-type");
  if (const std::string boundary = multipart_boundary(type); request.path == kEdits && !boundary.empty()) {
    MultipartParser parser(boundary, studio_().spool_folder());
    char buffer[64 << 10];
    while (body.left() > 0) {
      const size_t n = body.read(buffer, sizeof buffer);
      if (n == 0) fail(Code::kBadInput, "http", "the body did not arrive");
      parser.feed({buffer, n});
    }
    ImageForm form = image_form(parser.finish());
    return draw("edit", std::move(form.fields), form.uploads, request, client);
  }
  const std::string text = read_whole(body);
  if (type.substr(0, type.find(';')) != "application/json")
    return error_response(Code::kBadInput, "[http] the body is no application/json", 415);
  Json fields = parse_json(text, "the body");
  if (!fields.is_object()) fail(Code::kBadInput, "http", "the body is no JSON object");
  if (request.path == kGenerations)
    return draw("generate", std::move(fields), std::make_shared<Uploads>(), request, client);
  const auto uploads = uploads_from_json(fields);
  return draw("edit", std::move(fields), uploads, request, client);
}

HttpResponse ImageApi::draw(const std::string& kind, Json fields, std::shared_ptr<const Uploads> uploads,
                            const HttpRequest& request, const std::string& client) {
  const AnswerForm form = take_answer_form(fields, kind);
  const auto connection = make_waiting(hub_, kMostAnswerBytes, form.stream);
  Studio& studio = studio_();
  auto answer = std::make_shared<ImageAnswer>(studio, connection, form, "http://" + request.header("host"));
  Submission submission{kind, std::move(fields), std::move(uploads), client, true, form.url, answer};
  const std::shared_ptr<Job> job = studio.submit(std::move(submission));
  connection->when_gone([&studio, id = job->id] {
    try {
      studio.cancel(id);
    } catch (const std::exception&) {  // it has ended and is forgotten
    }
  });
  HttpResponse response;
  response.waiting = connection;
  return response;
}

bool ImageApi::has_signed_link(const HttpRequest& request) {
  const std::string id = picture_in(request.path), signature = query_value(request, "signature");
  if (request.method != "GET" || id.empty() || signature.size() != 64) return false;
  return studio_().links().holds(id, query_value(request, "expires"), signature, wall_secs());
}

HttpResponse ImageApi::content(const std::string& picture_id) {
  StoredPicture picture = studio_().picture(picture_id);
  HttpResponse response;
  response.type = "image/" + picture.format;
  response.body = std::move(picture.bytes);
  response.headers = {{"Cache-Control", "private, max-age=3600"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Content-Security-Policy", "default-src 'none'"}};
  return response;
}

HttpResponse ImageApi::events(const HttpRequest& request) {
  if (!request.query.empty()) fail(Code::kBadInput, "events", "no arguments are taken here");
  Studio& studio = studio_();
  int64_t after = studio.events().last_id();
  if (const std::string last = request.header("last-event-id"); !last.empty()) {
    const auto [end, error] = std::from_chars(last.data(), last.data() + last.size(), after);
    if (error != std::errc() || end != last.data() + last.size() || after < 0)
      fail(Code::kBadInput, "events", "Last-Event-ID is not an event number of this server");
  }
  const auto connection = make_event_stream(hub_);
  const int follower =
      studio.events().follow(after, [weak = std::weak_ptr<WaitingConnection>(connection)](const Event& event) {
        if (const auto line = weak.lock())
          line->send("id: " + std::to_string(event.id) + "\nevent: " + event.topic + "\ndata: " + event.data + "\n\n");
      });
  connection->when_gone([&studio, follower] { studio.events().leave(follower); });
  HttpResponse response;
  response.waiting = connection;
  return response;
}

std::optional<HttpResponse> ImageApi::route(const HttpRequest& request) {
  const bool metrics = request.path == "/metrics", events_route = request.path == "/v1/events";
  const bool posted = request.path == kGenerations || request.path == kEdits;
  const std::string picture = picture_in(request.path);
  if (!metrics && !events_route && !posted && picture.empty()) return std::nullopt;
  const bool reads = request.method == "GET" || (request.method == "HEAD" && !events_route);
  if (posted || !reads) {
    const char* allowed = posted ? "POST" : "GET";
    HttpResponse response =
        error_response(Code::kUsage, std::string("[http] only ") + allowed + " is possible here", 405);
    response.headers["Allow"] = allowed;
    return response;
  }
  try {
    if (!picture.empty()) return content(picture);
    if (events_route) return events(request);
    HttpResponse response;
    response.type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = studio_().metrics_text();
    response.headers = {{"Cache-Control", "no-store"}};
    return response;
  } catch (const std::exception& error) {
    return image_error(error);
  }
}

}  // namespace lockstep
