// Layer: mcp
// Fuzzes messages of an MCP client: whatever comes, the reply is one JSON-RPC message that can be written, or none.
#include <cstdlib>
#include <string>

#include "base/message.h"
#include "base/shown_json.h"
#include "fuzz_input.h"
#include "mcp/mcp_server.h"
#include "structure.h"

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

// Every name that a client can use: methods, tools, their arguments and the values that these may have.
const std::vector<std::string>& words_of_clients() {
  static const std::vector<std::string> words = [] {
    std::vector<std::string> found = {"jsonrpc",
                                      "2.0",
                                      "id",
                                      "method",
                                      "params",
                                      "name",
                                      "arguments",
                                      "_meta",
                                      "requestId",
                                      "protocolVersion",
                                      "2025-06-18",
                                      "2024-11-05",
                                      "initialize",
                                      "ping",
                                      "tools/list",
                                      "tools/call",
                                      "progressToken",
                                      "cursor",
                                      "clientInfo",
                                      "capabilities",
                                      "server/discover",
                                      "notifications/cancelled"};
    for (const lockstep::Operation& operation : lockstep::operations()) {
      found.push_back(joined_name(operation, '_'));
      const lockstep::Json schema = arguments_schema(operation);
      for (const auto& [name, described] : schema["properties"].items()) found.push_back(name);
    }
    return found;
  }();
  return words;
}

// One call of every tool, with a value of the right type for every argument.
const std::vector<std::string>& example_messages() {
  static const std::vector<std::string> examples = [] {
    std::vector<std::string> found = {
        R"({"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}})",
        R"({"jsonrpc":"2.0","id":"x","method":"tools/list","params":{"cursor":"a"}})",
        R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}})",
        R"([{"jsonrpc":"2.0","id":1,"method":"ping"}])"};
    for (const lockstep::Operation& operation : lockstep::operations()) {
      lockstep::Json arguments = lockstep::Json::object();
      const lockstep::Json schema = arguments_schema(operation);
      for (const auto& [name, described] : schema["properties"].items()) {
        const lockstep::Json type = described.value("type", lockstep::Json("string"));
        arguments[name] = type == "integer"   ? lockstep::Json(1)
                          : type == "number"  ? lockstep::Json(0.5)
                          : type == "boolean" ? lockstep::Json(true)
                          : type == "array"   ? lockstep::Json::array({"a"})
                          : type == "object"  ? lockstep::Json{{"a", "b"}}
                                              : lockstep::Json("x.py:1");
      }
      found.push_back(lockstep::Json{
          {"jsonrpc", "2.0"},
          {"id", 1},
          {"method", "tools/call"},
          {"params",
           {{"name", joined_name(operation, '_')}, {"arguments", arguments}, {"_meta", {{"progressToken", 1}}}}}}
                          .dump());
    }
    return found;
  }();
  return examples;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (size > 0 && data[0] % 6 != 0) return LLVMFuzzerMutate(data, size, max_size);  // a piece inside a frame
  const size_t made =
      lockstep::mutate_json_lines(data, size, max_size, seed, 1, words_of_clients(), example_messages());
  if (seed % 16 != 0) data[0] = 0;
  return made;
}

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
