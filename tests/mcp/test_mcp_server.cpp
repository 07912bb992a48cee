#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "mcp/mcp_server.h"

namespace lockstep {
namespace {

Json request(const Json& id, const std::string& method, const Json& parameters = Json::object()) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", parameters}};
}

Json call(const std::string& tool, const Json& arguments = Json::object()) {
  return request(1, "tools/call", {{"name", tool}, {"arguments", arguments}});
}

TEST(Mcp, AgreesOnAVersion) {
  McpServer server([](const Operation&, const Json&, CallControl&) { return Json::object(); });
  const auto version = [&](const char* asked) {
    return server.answer("", request(1, "initialize", {{"protocolVersion", asked}}), {})["result"]["protocolVersion"];
  };
  EXPECT_EQ(version("2025-06-18"), "2025-06-18");
  EXPECT_EQ(version("1999-01-01"), "2025-11-25");
}

Json stateless(const std::string& method, Json parameters = Json::object(), const Json& revision = "2026-07-28") {
  parameters["_meta"] = {{"io.modelcontextprotocol/protocolVersion", revision},
                         {"io.modelcontextprotocol/clientCapabilities", Json::object()}};
  return request(1, method, parameters);
}

TEST(Mcp, TheStatelessRevisionNeedsNoHandshake) {
  McpServer server([](const Operation&, const Json&, CallControl&) { return Json{{"done", true}}; });
  const Json found = server.answer("", stateless("server/discover"), {})["result"];
  EXPECT_EQ(found["supportedVersions"][0], "2026-07-28");
  EXPECT_EQ(found["resultType"], "complete");
  EXPECT_TRUE(found.contains("ttlMs") && found.contains("cacheScope"));
  EXPECT_EQ(server.answer("", stateless("tools/list"), {})["result"]["resultType"], "complete");
  const Json called = server.answer("", stateless("tools/call", {{"name", "debug_status"}}), {})["result"];
  EXPECT_EQ(called["resultType"], "complete");
  EXPECT_EQ(called["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "lockstep");
  EXPECT_EQ(server.answer("", stateless("ping"), {})["error"]["code"], -32601);
  EXPECT_EQ(server.answer("", request(1, "server/discover"), {})["error"]["code"], -32601);
  const Json unknown = server.answer("", stateless("tools/list", Json::object(), "1999-01-01"), {})["error"];
  EXPECT_EQ(unknown["code"], -32022);
  EXPECT_EQ(unknown["data"]["requested"], "1999-01-01");
}

TEST(Mcp, WaitsAreBounded) {
  double longest = 0;
  McpServer server([&](const Operation&, const Json&, CallControl& control) {
    longest = control.longest_wait_secs;
    return Json::object();
  });
  server.answer("", call("debug_wait", {{"max_wait", 86400}}), {});
  EXPECT_LE(longest, 50);
}

TEST(Mcp, WhoHangsUpHasCancelled) {
  McpServer server([](const Operation&, const Json&, CallControl& control) {
    EXPECT_TRUE(control.cancelled());
    return Json::object();
  });
  server.answer("", call("debug_wait"), {}, [] { return true; });
}

TEST(Mcp, ListsTheWholeTable) {
  McpServer server([](const Operation&, const Json&, CallControl&) { return Json::object(); });
  const Json tools = server.answer("", request(1, "tools/list"), {})["result"]["tools"];
  EXPECT_EQ(tools.size(), operations().size());
  for (const Json& tool : tools) EXPECT_FALSE(tool["inputSchema"]["properties"].contains("whole_environment"));
}

TEST(Mcp, ErrorsOfToolsAreResultsThatSayWhatToDo) {
  McpServer server([](const Operation&, const Json&, CallControl&) -> Json {
    fail(Code::kConflict, "vars", "the program is running", {.hint = "pause"});
  });
  const Json result = server.answer("", call("debug_vars"), {})["result"];
  EXPECT_EQ(result["isError"], true);
  EXPECT_NE(result["content"][0]["text"].get<std::string>().find("try pause"), std::string::npos);
}

TEST(Mcp, AnswersAreBounded) {
  McpServer server([](const Operation&, const Json&, CallControl&) {
    return Json{{"lines", std::vector<std::string>(100000, "line")}};
  });
  const Json result = server.answer("", call("debug_log"), {})["result"];
  EXPECT_LT(result["content"][0]["text"].get<std::string>().size(), 30000u);
  EXPECT_TRUE(result["structuredContent"].contains("left_out"));
}

TEST(Mcp, ProgressIsToldAndARequestOfTheSameClientIsCancelled) {
  McpServer server([](const Operation&, const Json&, CallControl& control) {
    for (int i = 1; !control.cancelled(); ++i) {
      control.progress(i, "running");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Json::object();
  });
  Json message = call("debug_wait");
  message["params"]["_meta"] = {{"progressToken", "t"}};
  std::atomic<int> told{0};
  Json reply = "none yet";
  std::thread worker([&] { reply = server.answer("a", message, [&](const Json&) { ++told; }); });
  const Json cancel{{"jsonrpc", "2.0"}, {"method", "notifications/cancelled"}, {"params", {{"requestId", 1}}}};
  while (told < 3) std::this_thread::yield();
  server.answer("b", cancel, {});  // another client's number 1
  const int before = told;
  while (told < before + 3) std::this_thread::yield();
  server.answer("a", cancel, {});
  worker.join();
  EXPECT_TRUE(reply.is_null());  // nobody wants the reply to a cancelled request
}

TEST(Mcp, WhatIsNoRequestGetsAnErrorOrNothing) {
  McpServer server([](const Operation&, const Json&, CallControl&) { return Json::object(); });
  EXPECT_EQ(server.answer("", Json::array(), {})["error"]["code"], -32600);
  EXPECT_EQ(server.answer("", request(1, "nothing"), {})["error"]["code"], -32601);
  EXPECT_EQ(server.answer("", request(1, "tools/call", {{"name", 5}}), {})["error"]["code"], -32602);
  EXPECT_TRUE(server.answer("", {{"jsonrpc", "2.0"}, {"method", "notifications/initialized"}}, {}).is_null());
  EXPECT_TRUE(server.answer("", {{"jsonrpc", "2.0"}, {"id", 1}, {"result", {}}}, {}).is_null());
}

}  // namespace
}  // namespace lockstep
