// The routes that OpenAI's clients know, over the studio: pictures from text and from pictures, in one answer or as a
// stream; and what is not a call of the operations table: links to pictures, events, metrics.
#pragma once
#include <functional>
#include <optional>

#include "http/http_server.h"
#include "studio/studio.h"

namespace lockstep {

inline constexpr uint64_t kMostJsonBodyBytes = 72ull << 20;   // one picture of 50 MB in base64, and words
inline constexpr uint64_t kMostFormBodyBytes = 852ull << 20;  // seventeen files of 50 MB, and words

// Bytes of body that a request to this path may bring.
uint64_t body_limit(const HttpRequest& request, uint64_t standard);

// The error body of every route: message, type, param, code, hint.
HttpResponse image_error(const std::exception& error);

class ImageApi {
 public:
  using OpenStudio = std::function<Studio&()>;
  ImageApi(OpenStudio studio, ConnectionHub& hub) : studio_(std::move(studio)), hub_(hub) {}

  // Requests whose body is read as it comes; nothing: it is another's.
  std::optional<HttpResponse> with_body(const HttpRequest& request, BodyReader& body, const std::string& client);
  std::string read_body(BodyReader& body);  // of a route that takes large ones; BusyError
  // The rest of our routes; nothing: it is another's.
  std::optional<HttpResponse> route(const HttpRequest& request);
  // Whether a link in the request stands for the token.
  bool has_signed_link(const HttpRequest& request);

 private:
  HttpResponse draw(const std::string& kind, Json fields, std::shared_ptr<const Uploads> uploads,
                    const HttpRequest& request, const std::string& client);
  HttpResponse content(const std::string& picture_id);
  HttpResponse events(const HttpRequest& request);
  HttpResponse read_and_draw(const HttpRequest& request, BodyReader& body, const std::string& client);

  OpenStudio studio_;
  ConnectionHub& hub_;
  std::atomic<int> large_bodies_{0};
};

}  // namespace lockstep
