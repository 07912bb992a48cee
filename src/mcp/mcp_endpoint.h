// MCP's streamable HTTP: POST a message to /mcp, get the reply as JSON, or as events where progress was asked for.
#pragma once
#include <deque>
#include <mutex>
#include <string>

#include "http/http_server.h"
#include "mcp/mcp_server.h"

namespace lockstep {

class McpEndpoint {
 public:
  explicit McpEndpoint(McpServer& server) : server_(server) {}
  HttpResponse answer(const HttpRequest& request);

 private:
  HttpResponse post(const HttpRequest& request);
  HttpResponse post_stateless(const HttpRequest& request, const Json& message);
  HttpResponse exchange(const HttpRequest& request, const std::string& client, const Json& message, bool stateless);
  bool known(const std::string& client);
  std::string new_client();

  McpServer& server_;
  std::mutex mutex_;
  std::deque<std::string> clients_;  // session ids that we have given out, oldest first
};

}  // namespace lockstep
