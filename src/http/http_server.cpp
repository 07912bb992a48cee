#include "http/http_server.h"

#include <arpa/inet.h>
#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/platform/descriptors.h"
#include "base/thread.h"
#include "http/bounded_socket.h"
#include "http/http_head.h"
#include "http/serving_threads.h"
#include "http/small_letters.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kNewcomer{1000};  // to send something, while others wait
constexpr int kBacklog = 512;                         // connections that the system holds while all threads are busy

// Of the request that this thread is serving.
thread_local int served_socket = -1;
thread_local bool served_whole = false;    // it was read to its end: what follows is the next request
thread_local bool served_streams = false;  // the answer goes out in pieces
thread_local BoundedSocket* served_connection = nullptr;
thread_local std::shared_ptr<WaitingConnection> served_waiting;  // takes the connection over

// A connection as the library sees it. Nothing is marked `override`: what it asks for has other names in newer versions
// (Debian 12 has 0.11, Homebrew 0.53), and these are the names of both.
class LibraryStream : public httplib::Stream {
 public:
  explicit LibraryStream(BoundedSocket& socket) : socket_(socket) {}
  bool is_readable() const { return socket_.is_readable(); }
  bool is_writable() const { return !client_gone() && socket_.is_writable(); }
  bool wait_readable() const { return is_readable(); }
  bool wait_writable() const { return is_writable(); }
  ssize_t read(char* to, size_t size) { return socket_.read(to, size); }
  ssize_t write(const char* from, size_t size) {
    if (served_waiting) return static_cast<ssize_t>(size);  // the answer comes from elsewhere
    return socket_.write({from, size}, served_streams);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const { ip.clear(), port = 0; }
  void get_local_ip_and_port(std::string& ip, int& port) const { ip.clear(), port = 0; }
  socket_t socket() const { return socket_.fd(); }
  time_t duration() const { return 0; }

 private:
  BoundedSocket& socket_;
};

// The library wants a queue of its own each time it listens; the threads are there before.
class BoundedQueue : public httplib::TaskQueue {
 public:
  explicit BoundedQueue(ServingThreads& threads) : threads_(threads) {}
  using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));  // nothing, or whether: it always is
  Taken enqueue(std::function<void()> job) override {
    threads_.enqueue(std::move(job));
    return static_cast<Taken>(true);
  }
  void shutdown() override { threads_.shutdown(); }

 private:
  ServingThreads& threads_;
};

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 410:
      return "Gone";
    case 413:
      return "Content Too Large";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 414:
      return "URI Too Long";
    case 417:
      return "Expectation Failed";
    case 431:
      return "Request Header Fields Too Large";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Bad Request";
  }
}

// What is left of a request's body, for a handler that reads it itself.
class SocketBody : public BodyReader {
 public:
  SocketBody(BoundedSocket& socket, uint64_t length) : socket_(socket), left_(length) {}
  uint64_t left() const override { return left_; }
  size_t read(char* to, size_t size) override {
    if (left_ == 0) return 0;
    const ssize_t n = socket_.read(to, static_cast<size_t>(std::min<uint64_t>(size, left_)));
    if (n <= 0) return 0;
    left_ -= static_cast<uint64_t>(n);
    return static_cast<size_t>(n);
  }

 private:
  BoundedSocket& socket_;
  uint64_t left_;
};

// To a request that the library never sees.
std::string refusal(const HeadFault& fault) {
  const std::string body = R"({"error":{"code":"bad_input","message":"[http] )" + fault.message +
                           R"(","hint":"see /v1/openapi.json","type":"invalid_request_error","param":null}})";
  return "HTTP/1.1 " + std::to_string(fault.status) + " " + reason_of(fault.status) +
         "\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

class BoundedServer : public httplib::Server {
 public:
  explicit BoundedServer(const HttpLimits& limits) : limits_(limits), hub_(limits.waiting_connections) {}

  ConnectionHub& hub() { return hub_; }

  Load& load() { return load_; }
  void hang_up() { stopping_ = true; }  // connections that wait for a request are closed

 private:
  bool process_and_close_socket(socket_t socket) override {
    served_socket = socket;
    bool ok = true;
    try {
      BoundedSocket connection(socket, limits_);
      // Whoever has just come has not been heard yet, however many wait behind; later it may come again.
      std::chrono::milliseconds unheard = kNewcomer;
      for (int left = limits_.connection_requests; ok && left > 0 && next_request(connection, unheard); --left) {
        ok = serve_request(connection, left == 1);
        unheard = {};
      }
    } catch (const std::exception&) {  // out of memory: the connection is lost, the server is not
    }
    served_socket = -1;
    served_connection = nullptr;
    if (served_waiting) {
      hub_.attach(std::exchange(served_waiting, nullptr), socket);
      return true;
    }
    hub_.linger(socket);
    return ok;
  }

  // The library's own; newer versions want to be told the addresses, which our handlers ask the system for.
  template <typename Server>
  static bool process(Server& server, httplib::Stream& stream, bool last, bool& closed) {
    if constexpr (requires { server.process_request(stream, last, closed, nullptr); })
      return server.process_request(stream, last, closed, nullptr);
    else
      return server.process_request(stream, std::string(), 0, std::string(), 0, last, closed, nullptr);
  }

  // Whether another request may follow on this connection.
  bool serve_request(BoundedSocket& connection, bool last) {
    served_whole = served_streams = false;
    const BoundedSocket::Head head = connection.read_head([this] { return load_.is_full(); });
    if (head == BoundedSocket::Head::kGone) return false;
    const auto fault = head == BoundedSocket::Head::kTooLong
                           ? std::optional(HeadFault{431, "the headers are too large; expected at most 64 KiB"})
                           : fault_in_head(connection.head());
    if (fault) {
      connection.write(refusal(*fault), true);
      return false;
    }
    LibraryStream stream(connection);
    served_connection = &connection;
    bool closed = false;
    const bool ok = process(*this, stream, last, closed) && !closed;
    // What a refused request still has to send must never be read as the next request.
    if (served_waiting) return false;
    return connection.flush() && ok && served_whole;
  }

  // Whether one is there, or comes before somebody else needs this thread, who waits for as long as `unheard`.
  bool next_request(const BoundedSocket& connection, std::chrono::milliseconds unheard) const {
    if (connection.has_more()) return true;
    const Clock::time_point now = Clock::now(), mine = now + unheard;
    const Clock::time_point until = now + std::chrono::milliseconds(static_cast<int64_t>(limits_.idle_secs * 1000));
    pollfd watched{connection.fd(), POLLIN, 0};
    while (!stopping_) {
      const bool others_wait = load_.is_full() && milliseconds_until(mine) == 0;
      const int slice = others_wait ? 0 : std::min(milliseconds_until(until), 20);
      if (::poll(&watched, 1, slice) > 0) return true;
      if (others_wait || milliseconds_until(until) == 0) return false;
    }
    return false;
  }

  HttpLimits limits_;
  Load load_;
  ConnectionHub hub_;
  std::atomic<bool> stopping_{false};
};

std::string peer_address() {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  char text[INET6_ADDRSTRLEN] = {};
  if (served_socket < 0 || ::getpeername(served_socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return {};
  if (peer.ss_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(&peer)->sin_addr, text, sizeof text);
  else if (peer.ss_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6*>(&peer)->sin6_addr, text, sizeof text);
  return text;
}

HttpRequest request_from(const httplib::Request& from) {
  HttpRequest request{from.method, from.path, from.body, {from.params.begin(), from.params.end()}, {}, {}};
  for (const auto& [name, value] : from.headers) request.headers.emplace(in_small_letters(name), value);
  request.address = peer_address();
  return request;
}

void answer_with(const HttpResponse& from, httplib::Response& to) {
  served_waiting = from.waiting;
  to.status = from.status;
  for (const auto& [name, value] : from.headers) to.set_header(name, value);
  if (!from.stream) {
    to.set_content(from.body, from.type);
    return;
  }
  served_streams = true;
  to.set_chunked_content_provider(
      from.type,
      [stream = from.stream](size_t, httplib::DataSink& sink) {
        std::string piece;
        const bool more = stream(piece);
        if (!piece.empty() && !sink.write(piece.data(), piece.size())) return false;
        if (!more) sink.done();
        return true;
      },
      [abandoned = from.abandoned](bool whole) {
        if (!whole && abandoned) abandoned();
      });
}

}  // namespace

std::string HttpRequest::header(const std::string& small_name) const {
  const auto found = headers.find(small_name);
  return found == headers.end() ? std::string() : found->second;
}

std::string http_text(const HttpResponse& response) {
  HttpResponse head;  // without the body, which may be many pictures
  head.status = response.status;
  head.type = response.type;
  head.headers = response.headers;
  head.headers["Content-Length"] = std::to_string(response.body.size());
  return http_stream_head(head).append(response.body);
}

std::string http_stream_head(const HttpResponse& response) {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " " + reason_of(response.status) +
                     "\r\nConnection: close\r\nContent-Type: " + response.type + "\r\n";
  for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
  return head + "\r\n";
}

bool client_gone() {
  return served_socket >= 0 && peer_has_closed(served_socket);
}

struct HttpServer::Impl {
  explicit Impl(const HttpLimits& limits_) : limits(limits_), server(limits_) {}
  HttpLimits limits;
  BoundedServer server;
  std::unique_ptr<ServingThreads> threads;  // ends before the server that they serve
  int listening = -1;                       // the library's socket
  std::atomic<bool> stopped{false};
};

HttpServer::HttpServer(const HttpLimits& limits, Guard guard, Handler handler, BodyHandler body_handler)
    : impl_(std::make_unique<Impl>(limits)) {
  httplib::Server& server = impl_->server;
  server.new_task_queue = [&threads = impl_->threads] { return new BoundedQueue(*threads); };
  server.set_keep_alive_timeout(static_cast<time_t>(limits.idle_secs));
  server.set_keep_alive_max_count(static_cast<size_t>(limits.connection_requests));
  server.set_payload_max_length(limits.body_bytes);
  server.set_tcp_nodelay(true);
  // The library's own choice lets a second process listen on our port.
  server.set_socket_options([&listening = impl_->listening](int fd) {
    const int yes = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    listening = fd;
  });
  const auto refuse_or_go_on = [guard, body_handler, limits](const httplib::Request& from, httplib::Response& to) {
    // Answers are whole: the library would cut a refusal into the pieces that a client without a token asks for, and
    // thousands of them fit into a head.
    const_cast<httplib::Request&>(from).ranges.clear();
    const HttpRequest request = request_from(from);
    if (const auto refused = guard(request)) {
      answer_with(*refused, to);
      to.set_header("Connection", "close");
      return httplib::Server::HandlerResponse::Handled;
    }
    if (body_handler && from.method == "POST" && served_connection) {
      const uint64_t length = from.has_header("Content-Length")
                                  ? std::strtoull(from.get_header_value("Content-Length").c_str(), nullptr, 10)
                                  : 0;
      served_connection->allow(length, limits.large_request_secs);
      SocketBody body(*served_connection, length);
      if (const auto answer = body_handler(request, body)) {
        served_whole = body.left() == 0;
        answer_with(*answer, to);
        if (!served_whole) to.set_header("Connection", "close");
        return httplib::Server::HandlerResponse::Handled;
      }
      served_connection->allow(std::min<uint64_t>(length, limits.body_bytes), limits.request_secs);
    }
    return httplib::Server::HandlerResponse::Unhandled;
  };
  server.set_pre_routing_handler(refuse_or_go_on);
  server.set_expect_100_continue_handler([guard](const httplib::Request& from, httplib::Response& to) {
    const auto refused = guard(request_from(from));
    if (!refused) return 100;
    // The body of a request that is refused is not wanted. With this status the library sends the answer as it stands
    // and ends the request; with 417 it would send that and an answer behind it.
    answer_with(*refused, to);
    to.set_header("Connection", "close");
    return refused->status;
  });
  const auto serve = [handler](const httplib::Request& from, httplib::Response& to) {
    // The library reads no body of these methods, whatever the head promises.
    const bool bodiless = from.method == "GET" || from.method == "HEAD" || from.method == "OPTIONS";
    served_whole = !bodiless || !from.has_header("Content-Length") || from.get_header_value("Content-Length") == "0";
    if (!served_whole) to.set_header("Connection", "close");
    answer_with(handler(request_from(from)), to);
    // The library would pack every text once more, at the slowest setting it has: seconds for a megabyte, and what is
    // packed already twice. It asks this field of its own request, after us.
    const_cast<httplib::Request&>(from).headers.erase("Accept-Encoding");
  };
  server.Get(".*", serve)
      .Post(".*", serve)
      .Put(".*", serve)
      .Patch(".*", serve)
      .Delete(".*", serve)
      .Options(".*", serve);
  server.set_error_handler([](const httplib::Request&, httplib::Response& to) {
    if (!to.body.empty()) return;
    const char* what = to.status == 413 ? "the request is too large" : "the request cannot be understood";
    to.set_content(std::string(R"({"error":{"code":"bad_input","message":"[http] )") + what +
                       R"(","hint":"see /v1/openapi.json","type":"invalid_request_error","param":null}})",
                   "application/json");
  });
}

HttpServer::~HttpServer() = default;

int HttpServer::bind(const std::string& host, int port) {
  httplib::Server& server = impl_->server;
  const int taken = port == 0 ? server.bind_to_any_port(host) : server.bind_to_port(host, port) ? port : -1;
  if (taken <= 0)
    fail(Code::kIo, "serve", "cannot listen on " + host + ":" + std::to_string(port) + ": " + std::strerror(errno),
         {.hint = "another --port, or 0 for any"});
  // The library's own queue holds five: a burst of clients beyond it is not answered.
  ::listen(impl_->listening, kBacklog);
  // Before anybody is told where we are: a service without threads would take calls and never answer.
  impl_->threads = std::make_unique<ServingThreads>(impl_->limits.threads, impl_->server.load());
  return taken;
}

bool HttpServer::run() {
  return impl_->server.listen_after_bind();
}

ConnectionHub& HttpServer::hub() const {
  return impl_->server.hub();
}

void HttpServer::stop() {
  impl_->server.hang_up();
  impl_->server.hub().stop();
  if (impl_->server.is_running() && !impl_->stopped.exchange(true)) impl_->server.stop();
}

}  // namespace lockstep
