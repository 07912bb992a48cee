// The Model Context Protocol over the operations table: initialize, ping, tools/list, tools/call with progress and
// cancellation. Transports hand in messages and carry away replies; this file knows neither pipes nor HTTP.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "service/service.h"

namespace lockstep {

class McpServer {
 public:
  using Call = std::function<Json(const Operation&, const Json& arguments, CallControl&)>;
  using Send = std::function<void(const Json& message)>;

  explicit McpServer(Call call) : call_(std::move(call)) {}

  // The reply to one message; null for a notification. `client` tells apart whose request numbers these are; `notify`
  // carries progress and may be empty. Blocks as long as a tool does.
  Json answer(const std::string& client, const Json& message, const Send& notify);
  static Json parse_error(const std::string& what);  // the reply to what is no message at all
  void cancel_all(const std::string& client);

  static bool is_request(const Json& message);
  static bool wants_progress(const Json& message);

 private:
  struct Running;
  Json call_tool(const std::string& client, const Json& id, const Json& parameters, const Send& notify);
  void cancel(const std::string& client, const Json& parameters);

  Call call_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<std::atomic<bool>>> running_;  // client and request → cancelled
};

// One JSON message a line on stdin and stdout, until stdin ends.
int serve_mcp_stdio(McpServer& server);

}  // namespace lockstep
