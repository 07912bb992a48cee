// HTTP, served. A request costs a bounded number of bytes, a bounded time to arrive and one of a bounded number of
// threads.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http/connection_hub.h"

namespace lockstep {

struct HttpRequest {
  std::string method, path, body;
  std::multimap<std::string, std::string> query;
  std::multimap<std::string, std::string> headers;  // names in small letters
  std::string address;                              // of the client

  std::string header(const std::string& small_name) const;  // the first; empty: none
  size_t header_count(const std::string& small_name) const { return headers.count(small_name); }
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json", body;
  std::map<std::string, std::string> headers;
  // Set: the body comes in pieces, each as it is ready. False: that was the last. Must look at client_gone() often.
  std::function<bool(std::string& piece)> stream;
  std::function<void()> abandoned;  // the client has gone before the last piece
  // Set: the rest is sent by whoever holds it, head included, and no thread waits for that.
  std::shared_ptr<WaitingConnection> waiting;
};

// Head and body as they go over the line, for a connection that ends with it.
std::string http_text(const HttpResponse& response);
// The head of an answer that goes on for as long as the connection.
std::string http_stream_head(const HttpResponse& response);

// The body of a request, read by its handler piece by piece.
class BodyReader {
 public:
  virtual ~BodyReader() = default;
  virtual uint64_t left() const = 0;
  virtual size_t read(char* to, size_t size) = 0;  // 0: nothing came in time, or the client has gone
};

struct HttpLimits {
  size_t body_bytes = 4 << 20;
  size_t header_bytes = 64 << 10;
  double request_secs = 10;  // a request must have arrived by then
  double write_secs = 10;    // a reader that takes nothing for so long is given up
  double idle_secs = 30;     // a connection may wait for its next request, as long as nobody else wants its thread
  int connection_requests = 1000;
  int threads = 48;
  double large_request_secs = 120;  // for a body that its handler reads
  size_t waiting_connections = 4096;
};

class HttpServer {
 public:
  using Guard = std::function<std::optional<HttpResponse>(const HttpRequest&)>;  // before the body is read
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  // Of requests whose body it reads itself; nothing: the handler gets the request with its body.
  using BodyHandler = std::function<std::optional<HttpResponse>(const HttpRequest&, BodyReader&)>;

  HttpServer(const HttpLimits& limits, Guard guard, Handler handler, BodyHandler body_handler = {});
  ~HttpServer();
  int bind(const std::string& host, int port);  // port 0: any; returns the one taken. Error{kIo}
  bool run();                                   // until stop(); false: the system takes no more connections
  void stop();                                  // from any thread, as often as liked; before run() it is not heard
  ConnectionHub& hub() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether the client of the request that this thread is serving has hung up.
bool client_gone();

}  // namespace lockstep
