// Layer: mcp
// Fuzzes messages of an MCP client: whatever comes, the reply is one JSON-RPC message that can be written, or none.
#include <cstdlib>
#include <string>

#include "base/message.h"
#include "base/shown_json.h"
#include "fuzz_input.h"
#include "mcp/mcp_server.h"

namespace {

// A message from bytes: frames that the protocol knows, with the input in one of their places.
std::string framed(std::string_view given) {
  if (given.empty()) return "";
  const std::string rest(given.substr(1));
  switch (given[0] % 6) {
    case 0:
      return rest;
    case 1:
      return R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"debug_break","arguments":)" + rest +
             "}}";
    case 2:
      return R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":)" + rest + "}";
    case 3:
      return R"({"jsonrpc":"2.0","id":)" + rest + R"(,"method":"tools/list"})";
    case 4:
      return R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":)" + rest + "}";
    default:
      return R"({"jsonrpc":"2.0","id":"a","method":"initialize","params":)" + rest + "}";
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const auto message = json_message(framed({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    if (!message) return;
    static McpServer server([](const Operation& operation, const Json& given, CallControl&) {
      return Json{{"checked", checked_arguments(operation, given)}};  // as the service does before it calls
    });
    const Json reply = server.answer("", *message, [](const Json& sent) { static_cast<void>(shown_json(sent)); });
    if (reply.is_null()) return;
    const std::string text = shown_json(reply);
    const Json again = parse_json(text, "the reply");
    if (!again.is_object() || again.value("jsonrpc", std::string()) != "2.0") std::abort();
    if (again.contains("result") == again.contains("error")) std::abort();
  });
}
