#include "rest/http.h"

#include <arpa/inet.h>
#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// Of the request that this thread is serving.
thread_local int served_socket = -1;
thread_local bool served_whole = false;    // it was read to its end: what follows is the next request
thread_local bool served_streams = false;  // the answer goes out in pieces

int milliseconds_until(Clock::time_point when) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(when - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 3600 * 1000));
}

// The library bounds each read, not their sum: a client that sends a byte now and then, or headers without end, would
// keep a thread and fill memory. An answer goes out in one write, head and body together.
class BoundedStream : public httplib::Stream {
 public:
  BoundedStream(int fd, const HttpLimits& limits) : fd_(fd), limits_(limits) {}

  void begin_request() {
    budget_ = limits_.header_bytes + limits_.body_bytes;
    deadline_ = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(limits_.request_secs * 1000));
  }
  bool has_more() const { return at_ < end_; }  // the client did not wait for its answer

  bool is_readable() const override { return at_ < end_ || (flush() && ready(POLLIN, milliseconds_until(deadline_))); }
  bool is_writable() const override { return !client_gone() && ready(POLLOUT, write_ms()); }

  ssize_t read(char* to, size_t size) override {
    if (at_ == end_) {
      // The client may wait for our word to go on (100 Continue).
      if (budget_ == 0 || !flush() || !ready(POLLIN, milliseconds_until(deadline_))) return -1;
      const ssize_t n = ::recv(fd_, buffer_, std::min(sizeof buffer_, budget_), 0);
      if (n <= 0) return n;
      budget_ -= static_cast<size_t>(n);
      at_ = 0;
      end_ = static_cast<size_t>(n);
    }
    const size_t n = std::min(size, end_ - at_);
    std::copy_n(buffer_ + at_, n, to);
    at_ += n;
    return static_cast<ssize_t>(n);
  }

  ssize_t write(const char* from, size_t size) override {
    pending_.append(from, size);
    if ((served_streams || pending_.size() >= kMostPending) && !flush()) return -1;
    return static_cast<ssize_t>(size);
  }

  bool flush() const {
    size_t done = 0;
    while (done < pending_.size()) {
      const ssize_t n =
          ready(POLLOUT, write_ms()) ? ::send(fd_, pending_.data() + done, pending_.size() - done, MSG_NOSIGNAL) : -1;
      if (n <= 0 && !(n < 0 && errno == EINTR)) break;
      done += static_cast<size_t>(std::max<ssize_t>(n, 0));
    }
    const bool all = done == pending_.size();
    pending_.clear();
    return all;
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  void get_local_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  socket_t socket() const override { return fd_; }

 private:
  bool ready(short events, int milliseconds) const {
    pollfd watched{fd_, events, 0};
    int n;
    do n = ::poll(&watched, 1, milliseconds);
    while (n < 0 && errno == EINTR);
    return n > 0 && (watched.revents & (events | POLLHUP));
  }

  int write_ms() const { return static_cast<int>(limits_.write_secs * 1000); }

  static constexpr size_t kMostPending = 64 << 10;
  int fd_;
  const HttpLimits& limits_;
  size_t budget_ = 0, at_ = 0, end_ = 0;
  Clock::time_point deadline_;
  mutable std::string pending_;  // what the client has not been sent yet
  char buffer_[16 << 10];
};

// Connections without a thread, and threads without a connection.
struct Load {
  std::atomic<int> waiting{0}, free{0};
  bool is_full() const { return waiting > free; }
};

// So many threads and no queue beyond them: while all are busy nobody is accepted, and the system holds the rest off.
class BoundedQueue : public httplib::TaskQueue {
 public:
  BoundedQueue(int threads, Load& load) : load_(load) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }

  void enqueue(std::function<void()> job) override {
    std::unique_lock lock(mutex_);
    taken_.wait(lock, [&] { return jobs_.size() < threads_.size() || stopping_; });
    jobs_.push_back(std::move(job));
    ++load_.waiting;
    added_.notify_one();
  }

  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    added_.notify_all();
    taken_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void work() {
    while (true) {
      std::function<void()> job;
      {
        std::unique_lock lock(mutex_);
        ++load_.free;
        added_.wait(lock, [&] { return !jobs_.empty() || stopping_; });
        --load_.free;
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
        --load_.waiting;
      }
      taken_.notify_one();
      job();
    }
  }

  std::vector<std::thread> threads_;
  std::deque<std::function<void()>> jobs_;
  std::mutex mutex_;
  std::condition_variable added_, taken_;
  Load& load_;
  bool stopping_ = false;
};

class BoundedServer : public httplib::Server {
 public:
  explicit BoundedServer(const HttpLimits& limits) : limits_(limits) {}

  Load& load() { return load_; }
  void hang_up() { stopping_ = true; }  // connections that wait for a request are closed

 private:
  bool process_and_close_socket(socket_t socket) override {
    served_socket = socket;
    bool ok = true;
    try {
      BoundedStream stream(socket, limits_);
      for (int left = limits_.connection_requests; ok && left > 0 && next_request(stream, socket); --left) {
        served_whole = served_streams = false;
        bool closed = false;
        stream.begin_request();
        ok = process_request(stream, left == 1, closed, nullptr) && !closed;
        // What a refused request still has to send must never be read as the next request.
        ok = stream.flush() && ok && served_whole;
      }
    } catch (const std::exception&) {  // out of memory: the connection is lost, the server is not
    }
    served_socket = -1;
    ::shutdown(socket, SHUT_WR);
    // What the client still sends is read away for a moment: closing on it would reset the connection, and the client
    // would lose our answer.
    const Clock::time_point until = Clock::now() + std::chrono::milliseconds(200);
    char rest[4096];
    pollfd watched{socket, POLLIN, 0};
    while (::poll(&watched, 1, milliseconds_until(until)) > 0 && ::recv(socket, rest, sizeof rest, 0) > 0) {
    }
    ::close(socket);
    return ok;
  }

  // Whether one is there, or comes before somebody else needs this thread.
  bool next_request(const BoundedStream& stream, int socket) const {
    if (stream.has_more()) return true;
    const Clock::time_point until =
        Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(limits_.idle_secs * 1000));
    pollfd watched{socket, POLLIN, 0};
    while (!stopping_) {
      const int slice = std::min(milliseconds_until(until), 20);
      if (::poll(&watched, 1, slice) > 0) return true;
      if (load_.is_full() || milliseconds_until(until) == 0) return false;
    }
    return false;
  }

  HttpLimits limits_;
  Load load_;
  std::atomic<bool> stopping_{false};
};

std::string small(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

HttpRequest request_from(const httplib::Request& from) {
  HttpRequest request{from.method, from.path, from.body, {from.params.begin(), from.params.end()}, {}};
  for (const auto& [name, value] : from.headers) request.headers.emplace(small(name), value);
  return request;
}

void answer_with(const HttpResponse& from, httplib::Response& to) {
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

bool client_gone() {
  if (served_socket < 0) return false;
  pollfd watched{served_socket, POLLRDHUP, 0};
  return ::poll(&watched, 1, 0) > 0 && (watched.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

struct HttpServer::Impl {
  explicit Impl(const HttpLimits& limits) : server(limits) {}
  BoundedServer server;
};

HttpServer::HttpServer(const HttpLimits& limits, Guard guard, Handler handler) : impl_(std::make_unique<Impl>(limits)) {
  httplib::Server& server = impl_->server;
  server.new_task_queue = [threads = limits.threads, &load = impl_->server.load()] {
    return new BoundedQueue(threads, load);
  };
  server.set_keep_alive_timeout(static_cast<time_t>(limits.idle_secs));
  server.set_keep_alive_max_count(static_cast<size_t>(limits.connection_requests));
  server.set_payload_max_length(limits.body_bytes);
  server.set_tcp_nodelay(true);
  // The library's own choice lets a second process listen on our port.
  server.set_socket_options([](int fd) {
    const int yes = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const auto refuse_or_go_on = [guard](const httplib::Request& from, httplib::Response& to) {
    if (const auto refused = guard(request_from(from))) {
      answer_with(*refused, to);
      to.set_header("Connection", "close");
      return httplib::Server::HandlerResponse::Handled;
    }
    return httplib::Server::HandlerResponse::Unhandled;
  };
  server.set_pre_routing_handler(refuse_or_go_on);
  server.set_expect_100_continue_handler([guard](const httplib::Request& from, httplib::Response&) {
    return guard(request_from(from)) ? 417 : 100;  // the body of a request that is refused is not wanted
  });
  const auto serve = [handler](const httplib::Request& from, httplib::Response& to) {
    // The library reads no body of these methods, whatever the head promises.
    const bool bodiless = from.method == "GET" || from.method == "HEAD" || from.method == "OPTIONS";
    served_whole = !bodiless || !from.has_header("Content-Length") || from.get_header_value("Content-Length") == "0";
    if (!served_whole) to.set_header("Connection", "close");
    answer_with(handler(request_from(from)), to);
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
                       R"(","hint":"see /v1/openapi.json"}})",
                   "application/json");
  });
}

HttpServer::~HttpServer() = default;

int HttpServer::bind(const std::string& host, int port) {
  httplib::Server& server = impl_->server;
  const int taken = port == 0 ? server.bind_to_any_port(host) : server.bind_to_port(host, port) ? port : -1;
  if (taken <= 0)
    fail(Code::kIo, "serve", "cannot listen on " + host + ":" + std::to_string(port),
         {.hint = "another --port, or 0 for any"});
  return taken;
}

void HttpServer::run() {
  impl_->server.listen_after_bind();
}

void HttpServer::stop() {
  impl_->server.hang_up();
  impl_->server.stop();
}

namespace {

std::unique_ptr<httplib::Client> client_for(const HttpTarget& target) {
  auto client = std::make_unique<httplib::Client>(target.host, target.port);
  const auto whole = static_cast<time_t>(target.timeout_secs);
  client->set_connection_timeout(5);
  client->set_read_timeout(whole);
  client->set_write_timeout(10);
  client->set_tcp_nodelay(true);
  client->set_default_headers({{"Authorization", "Bearer " + target.token}});
  return client;
}

HttpAnswer answer_from(const httplib::Result& result) {
  HttpAnswer answer;
  if (!result) {
    answer.error = httplib::to_string(result.error());
    return answer;
  }
  answer.status = result->status;
  answer.type = result->get_header_value("Content-Type");
  answer.body = result->body;
  for (const auto& [name, value] : result->headers) answer.headers[small(name)] = value;
  return answer;
}

// Hangs up when the caller no longer wants the answer.
class Canceller {
 public:
  Canceller(httplib::Client& client, const std::function<bool()>& cancelled) {
    if (cancelled)
      thread_ = std::thread([this, &client, cancelled] {
        std::unique_lock lock(mutex_);
        while (!ended_.wait_for(lock, std::chrono::milliseconds(20), [this] { return done_; }))
          if (cancelled()) return client.stop();
      });
  }
  ~Canceller() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    ended_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace

HttpAnswer http_call(const HttpTarget& target, const std::string& method, const std::string& path,
                     const std::string& body, const std::function<bool()>& cancelled) {
  const auto client = client_for(target);
  const Canceller canceller(*client, cancelled);
  if (method == "GET") return answer_from(client->Get(path));
  return answer_from(client->Post(path, body, "application/json"));
}

HttpAnswer http_stream(const HttpTarget& target, const std::string& path,
                       const std::function<bool(const std::string&)>& use) {
  const auto client = client_for(target);
  return answer_from(client->Get(path, [&](const char* data, size_t size) { return use(std::string(data, size)); }));
}

}  // namespace lockstep
