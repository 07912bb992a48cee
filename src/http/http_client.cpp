#include "http/http_client.h"

#include <httplib.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/thread.h"
#include "http/small_letters.h"

namespace lockstep {
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
  for (const auto& [name, value] : result->headers) answer.headers[in_small_letters(name)] = value;
  return answer;
}

// Hangs up when the caller no longer wants the answer.
class Canceller {
 public:
  Canceller(httplib::Client& client, const std::function<bool()>& cancelled) {
    if (cancelled)
      thread_ = start_thread("http", [this, &client, cancelled] {
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
                       const std::function<bool(const std::string&)>& use, const std::function<bool()>& cancelled) {
  const auto client = client_for(target);
  const Canceller canceller(*client, cancelled);
  return answer_from(client->Get(path, [&](const char* data, size_t size) { return use(std::string(data, size)); }));
}

}  // namespace lockstep
