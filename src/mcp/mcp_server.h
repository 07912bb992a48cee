// The Model Context Protocol over the operations table: initialize or server/discover, ping, tools/list, tools/call
// with progress and cancellation. Transports hand in messages and carry away replies; this file knows neither pipes nor
// HTTP.
#pragma once
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "mcp/revision.h"
#include "service/service.h"

namespace lockstep {

class McpServer {
 public:
  using Call = std::function<Json(const Operation&, const Json& arguments, CallControl&)>;
  using Send = std::function<void(const Json& message)>;
  using Gone = std::function<bool()>;

  explicit McpServer(Call call) : call_(std::move(call)) {}

  // The reply to one message; null for a notification. `client` tells apart whose request numbers these are; `notify`
  // carries progress and may be empty; `gone` says that nobody waits for the reply any more. Blocks as long as a tool
  // does, which is a bounded time.
  Json answer(const std::string& client, const Json& message, const Send& notify, const Gone& gone = {});
  static Json parse_error(const std::string& what);  // the reply to what is no message at all
  static Json busy(const Json& id);                  // the reply to a call beyond what is served at a time
  static Json failed_call(const Json& id, const std::string& what);  // and to one that could not be begun or answered
  void cancel_all(const std::string& client);

  static bool is_request(const Json& message);
  static bool wants_progress(const Json& message);

 private:
  Json call_tool(const std::string& client, const Json& message, const Send& notify, const Gone& gone);
  void cancel(const std::string& client, const Json& parameters);

  Call call_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<std::atomic<bool>>> running_;  // client and request → cancelled
  // Cancellations that came before their call had begun, which a client on another connection may manage.
  std::deque<std::pair<std::string, std::chrono::steady_clock::time_point>> early_;
};

// One JSON message a line on stdin and stdout, until stdin ends.
int serve_mcp_stdio(McpServer& server);

}  // namespace lockstep
