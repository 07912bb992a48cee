#include "cli/mcp_endpoint.h"

#include <algorithm>
#include <condition_variable>
#include <thread>

#include "rest/service_process.h"

namespace lockstep {
namespace {

constexpr size_t kMostClients = 1000;

HttpResponse plain(int status, const Json& body = nullptr) {
  HttpResponse response;
  response.status = status;
  if (!body.is_null()) response.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  response.headers["Cache-Control"] = "no-store";
  return response;
}

// A call on a thread of its own, whose messages are handed out as they come.
class Exchange {
 public:
  Exchange(McpServer& server, std::string client, Json message) : server_(server), client_(std::move(client)) {
    thread_ = std::thread([this, message = std::move(message)] {
      const Json reply = server_.answer(client_, message, [this](const Json& progress) { push(progress); });
      if (!reply.is_null()) push(reply);
      const std::lock_guard lock(mutex_);
      done_ = true;
      changed_.notify_all();
    });
  }
  ~Exchange() { thread_.join(); }

  // False: that was all.
  bool next(std::string& piece) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(500), [this] { return done_ || !messages_.empty(); });
    while (!messages_.empty()) {
      piece += "event: message\ndata: " + messages_.front() + "\n\n";
      messages_.pop_front();
    }
    if (piece.empty() && !done_) piece = ": \n\n";
    return !done_;
  }

 private:
  void push(const Json& message) {
    const std::lock_guard lock(mutex_);
    messages_.push_back(message.dump(-1, ' ', false, Json::error_handler_t::replace));
    changed_.notify_all();
  }

  McpServer& server_;
  std::string client_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> messages_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace

bool McpEndpoint::known(const std::string& client) {
  const std::lock_guard lock(mutex_);
  return std::find(clients_.begin(), clients_.end(), client) != clients_.end();
}

std::string McpEndpoint::new_client() {
  const std::lock_guard lock(mutex_);
  clients_.push_back(new_token());
  if (clients_.size() > kMostClients) clients_.pop_front();
  return clients_.back();
}

HttpResponse McpEndpoint::answer(const HttpRequest& request) {
  if (request.method == "POST") return post(request);
  const std::string client = request.header("mcp-session-id");
  if (request.method == "DELETE" && known(client)) {
    server_.cancel_all(client);
    const std::lock_guard lock(mutex_);
    std::erase(clients_, client);
    return plain(200, Json::object());
  }
  if (request.method == "DELETE") return plain(404, McpServer::parse_error("there is no such session"));
  HttpResponse response = plain(405, McpServer::parse_error("only POST and DELETE: we send nothing unasked"));
  response.headers["Allow"] = "POST, DELETE";
  return response;
}

HttpResponse McpEndpoint::post(const HttpRequest& request) {
  const std::string client = request.header("mcp-session-id");
  if (!client.empty() && !known(client))
    return plain(404, McpServer::parse_error("the session has ended; initialize again"));
  std::string type = request.header("content-type");
  if (type.substr(0, type.find(';')) != "application/json")
    return plain(415, McpServer::parse_error("the body is no application/json"));
  const Json message = Json::parse(request.body, nullptr, false);
  if (message.is_discarded()) return plain(400, McpServer::parse_error("the body is no JSON"));
  if (!McpServer::is_request(message)) {
    const Json problem = server_.answer(client, message, {});
    return problem.is_null() ? plain(202) : plain(400, problem);
  }
  if (message["method"] == "initialize") {
    HttpResponse response = plain(200, server_.answer(client, message, {}));
    response.headers["Mcp-Session-Id"] = new_client();
    return response;
  }
  const bool streams = request.header("accept").find("text/event-stream") != std::string::npos;
  if (!streams || !McpServer::wants_progress(message)) {
    const Json reply = server_.answer(client, message, {});
    return plain(reply.is_null() ? 202 : 200, reply);
  }
  auto exchange = std::make_shared<Exchange>(server_, client, message);
  HttpResponse response = plain(200);
  response.type = "text/event-stream";
  response.stream = [exchange](std::string& piece) { return exchange->next(piece); };
  return response;
}

}  // namespace lockstep
