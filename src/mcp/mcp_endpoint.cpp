#include "mcp/mcp_endpoint.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <optional>
#include <thread>

#include "base/message.h"
#include "base/shown_json.h"
#include "base/thread.h"
#include "base/token.h"

namespace lockstep {
namespace {

constexpr size_t kMostClients = 1000;

HttpResponse plain(int status, const Json& body = nullptr) {
  HttpResponse response;
  response.status = status;
  if (!body.is_null()) response.body = shown_json(body);
  response.headers["Cache-Control"] = "no-store";
  return response;
}

// The reply as JSON; the newest revision gives each kind of error its HTTP status.
HttpResponse replied(const Json& reply, bool stateless) {
  if (reply.is_null()) return plain(202);
  int status = 200;
  if (stateless && reply.contains("error")) {
    const int code = reply["error"].value("code", 0);
    status = code == mcp_error::kNoMethod ? 404 : 400;
  }
  return plain(status, reply);
}

// A call on a thread of its own, whose messages are handed out as they come.
class Exchange {
 public:
  Exchange(McpServer& server, std::string client, Json message) : server_(server), client_(std::move(client)) {
    thread_ = start_thread("mcp", [this, message = std::move(message)] {
      try {
        const Json reply = server_.answer(
            client_, message, [this](const Json& progress) { push(progress); }, [this] { return gone_.load(); });
        if (!reply.is_null()) push(reply);
      } catch (const std::exception&) {  // no memory for the reply: the stream ends without one, the service goes on
      }
      const std::lock_guard lock(mutex_);
      done_ = true;
      changed_.notify_all();
    });
  }
  ~Exchange() { thread_.join(); }

  void give_up() { gone_ = true; }  // nobody listens: the call is cancelled

  // False: that was all.
  bool next(std::string& piece) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(200), [this] { return done_ || !messages_.empty(); });
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
    messages_.push_back(shown_json(message));
    changed_.notify_all();
  }

  McpServer& server_;
  std::string client_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> messages_;
  bool done_ = false;
  std::atomic<bool> gone_{false};
  std::thread thread_;
};

// =?base64?...?= carries what a header cannot; our tools have plain names, so that such a value is never one of them.
std::optional<std::string> header_mismatch(const HttpRequest& request, const Json& message) {
  for (const char* name : {"mcp-protocol-version", "mcp-method", "mcp-name"})
    if (request.header_count(name) > 1) return std::string(name) + " is given twice";
  if (request.header("mcp-protocol-version") != kStatelessRevision)
    return "Mcp-Protocol-Version differs from the revision in the body";
  const Json method = message.value("method", Json(""));
  if (Json(request.header("mcp-method")) != method) return "Mcp-Method differs from the method in the body";
  if (method != Json("tools/call")) return std::nullopt;
  const Json name = message["params"].value("name", Json(nullptr));
  if (name.is_string() && Json(request.header("mcp-name")) != name) return "Mcp-Name differs from the name in the body";
  return std::nullopt;
}

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
  std::string type = request.header("content-type");
  if (type.substr(0, type.find(';')) != "application/json")
    return plain(415, McpServer::parse_error("the body is no application/json"));
  const Json message = json_message(request.body).value_or(Json(Json::value_t::discarded));
  if (message.is_discarded()) return plain(400, McpServer::parse_error("the body is no JSON"));
  if (is_stateless(message) || request.header("mcp-protocol-version") == kStatelessRevision)
    return post_stateless(request, message);
  const std::string client = request.header("mcp-session-id");
  if (!client.empty() && !known(client))
    return plain(404, McpServer::parse_error("the session has ended; initialize again"));
  if (!McpServer::is_request(message)) {
    const Json problem = server_.answer(client, message, {});
    return problem.is_null() ? plain(202) : plain(400, problem);
  }
  if (message["method"] == "initialize") {
    HttpResponse response = plain(200, server_.answer(client, message, {}));
    response.headers["Mcp-Session-Id"] = new_client();
    return response;
  }
  return exchange(request, client, message, false);
}

// No session and nothing kept: whoever hangs up has cancelled.
HttpResponse McpEndpoint::post_stateless(const HttpRequest& request, const Json& message) {
  if (!message.is_object() || !message.contains("id")) {
    const Json problem =
        server_.answer("", message.is_object() ? Json{{"jsonrpc", "2.0"}, {"method", ""}} : message, {});
    return problem.is_null() ? plain(202) : plain(400, problem);  // no notification of a client means anything here
  }
  if (!is_stateless(message))
    return plain(400, {{"jsonrpc", "2.0"},
                       {"id", message["id"]},
                       {"error", {{"code", mcp_error::kBadParameters}, {"message", "_meta lacks the revision"}}}});
  const bool newest = envelope_problem(message).is_null();
  if (const auto mismatch = newest ? header_mismatch(request, message) : std::nullopt)
    return plain(400, {{"jsonrpc", "2.0"},
                       {"id", message["id"]},
                       {"error", {{"code", mcp_error::kHeaderMismatch}, {"message", *mismatch}}}});
  return exchange(request, "", message, true);
}

HttpResponse McpEndpoint::exchange(const HttpRequest& request, const std::string& client, const Json& message,
                                   bool stateless) {
  // Without a session two clients may use the same numbers, and no message can cancel.
  const std::string whose = stateless ? new_token() : client;
  const bool streams = request.header("accept").find("text/event-stream") != std::string::npos;
  if (!streams || !McpServer::wants_progress(message))
    return replied(server_.answer(whose, message, {}, stateless ? McpServer::Gone(client_gone) : McpServer::Gone()),
                   stateless);
  auto call = std::make_shared<Exchange>(server_, whose, message);
  HttpResponse response = plain(200);
  response.type = "text/event-stream";
  response.stream = [call, stateless](std::string& piece) {
    const bool gone = stateless && client_gone();
    if (gone) call->give_up();
    return call->next(piece) && !gone;
  };
  response.abandoned = [call, stateless] {
    if (stateless) call->give_up();
  };
  return response;
}

}  // namespace lockstep
