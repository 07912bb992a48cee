#include "mcp/mcp_server.h"

#include <algorithm>

#include "base/error.h"
#include "base/shown_json.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kEarly{2};  // that a cancellation may come before its call
constexpr size_t kMostEarly = 64;

using namespace mcp_error;

// Agents' clients give up after a minute or so: a longer wait is made of several.
constexpr double kLongestWaitSecs = 50;
constexpr size_t kMostResultBytes = 24 << 10;  // what an agent's context can bear; the operations have ways to ask on

constexpr const char* kInstructions =
    "Lockstep debugs live Python programs (PyTorch, MLX) and compares recorded runs. Debugging: debug_start a script "
    "(it "
    "stops before its first line), debug_break where it matters, debug_continue, then debug_vars, debug_eval and "
    "debug_stack look into the stopped frame; debug_next, debug_step and debug_finish move; debug_terminate ends it. "
    "The "
    "line shown has not run yet. Where a breakpoint does not stop, debug_why says the reason. Comparing: record a "
    "program, or use folders of .npy, .pt or .safetensors files as runs; compare names the first divergence and its "
    "cause. Drawing: jobs_create with a prompt, max_wait and show answers with the picture itself; jobs_show follows a "
    "job, jobs_cancel ends it, models_list says what can draw. Answers are bounded: left_out says what was cut and how "
    "to ask for it. So are waits: where the state is "
    "still running, debug_wait again.";

Json failure(const Json& id, int code, const std::string& message) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"error", {{"code", code}, {"message", message}}}};
}

Json success(const Json& id, Json result) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}};
}

Json capabilities() {
  return {{"tools", {{"listChanged", false}}}};
}

Json initialize(const Json& parameters) {
  return {{"protocolVersion", agreed_revision(parameters.value("protocolVersion", Json("")))},
          {"capabilities", capabilities()},
          {"serverInfo", server_info()},
          {"instructions", kInstructions}};
}

Json discover() {
  return {{"supportedVersions", all_revisions()}, {"capabilities", capabilities()}, {"instructions", kInstructions}};
}

Json tool_from(const Operation& operation) {
  Json input = arguments_schema(operation);
  input["properties"].erase("whole_environment");  // filled in by whoever starts the program
  if (const auto wait = input["properties"].find("max_wait"); wait != input["properties"].end())
    (*wait)["description"] = (*wait)["description"].get<std::string>() + "; at most 50 at a time";
  return {{"name", joined_name(operation, '_')},
          {"description", operation.help},
          {"inputSchema", input},
          {"outputSchema", result_schema(operation)},
          {"annotations",
           {{"readOnlyHint", operation.reads},
            {"destructiveHint", operation.name == "debug terminate"},
            {"openWorldHint", false}}}};
}

Json list_tools() {
  Json tools = Json::array();
  for (const Operation& operation : operations()) tools.push_back(tool_from(operation));
  return {{"tools", tools}};
}

Json text_content(const std::string& text) {
  return Json::array({{{"type", "text"}, {"text", text}}});
}

// Pictures go to the agent's eyes, not into the text it reads.
Json picture_contents(Json& answer) {
  Json pictures = Json::array();
  if (!answer.is_object() || !answer.contains(kShownField) || !answer[kShownField].is_array()) return pictures;
  for (const Json& one : answer[kShownField])
    pictures.push_back({{"type", "image"}, {"data", one.value("b64", "")}, {"mimeType", one.value("mime_type", "")}});
  answer.erase(kShownField);
  return pictures;
}

Json tool_error(const std::string& message) {
  return {{"content", text_content(message)}, {"isError", true}};
}

class ToolControl : public CallControl {
 public:
  ToolControl(std::shared_ptr<std::atomic<bool>> cancelled, Json token, const McpServer::Send& notify,
              const McpServer::Gone& gone)
      : cancelled_(std::move(cancelled)), token_(std::move(token)), notify_(notify), gone_(gone) {
    longest_wait_secs = kLongestWaitSecs;
  }

  bool cancelled() const override { return *cancelled_ || (gone_ && gone_()); }

  void progress(double done, const std::string& message) override {
    if (!notify_ || token_.is_null() || done <= last_) return;  // it must grow
    last_ = done;
    notify_({{"jsonrpc", "2.0"},
             {"method", "notifications/progress"},
             {"params", {{"progressToken", token_}, {"progress", done}, {"message", message}}}});
  }

 private:
  std::shared_ptr<std::atomic<bool>> cancelled_;
  Json token_;
  const McpServer::Send& notify_;
  const McpServer::Gone& gone_;
  double last_ = 0;
};

Json progress_token(const Json& message) {
  const auto parameters = message.find("params");
  if (parameters == message.end() || !parameters->is_object()) return nullptr;
  const auto meta = parameters->find("_meta");
  if (meta == parameters->end() || !meta->is_object()) return nullptr;
  const Json token = meta->value("progressToken", Json(nullptr));
  return token.is_string() || token.is_number_integer() ? token : Json(nullptr);
}

std::string key_of(const std::string& client, const Json& id) {
  return client + "\n" + id.dump(-1, ' ', false, Json::error_handler_t::replace);  // 1 and "1" are two requests
}

constexpr const char* kNoMemory = "[memory] the system has no more memory to give; try a smaller request";

}  // namespace

Json McpServer::parse_error(const std::string& what) {
  return failure(nullptr, kParse, what);
}

Json McpServer::busy(const Json& id) {
  return success(id, tool_error("[mcp] too many calls are running; try again when one of them has been answered"));
}

Json McpServer::failed_call(const Json& id, const std::string& what) {
  return success(id, tool_error(what));
}

bool McpServer::is_request(const Json& message) {
  return message.is_object() && message.contains("id") && message.contains("method");
}

bool McpServer::wants_progress(const Json& message) {
  return is_request(message) && !progress_token(message).is_null();
}

Json McpServer::answer(const std::string& client, const Json& message, const Send& notify, const Gone& gone) {
  if (!message.is_object() || message.value("jsonrpc", Json("")) != Json("2.0"))
    return failure(nullptr, kInvalidRequest, "one JSON-RPC 2.0 message is expected, no batch");
  const Json method = message.value("method", Json(nullptr));
  const Json id = message.value("id", Json(nullptr));
  if (!method.is_string()) return nullptr;  // a reply to a request that we never make
  const Json given = message.value("params", Json(nullptr));
  const Json parameters = given.is_object() ? given : Json::object();
  const std::string name = method.get<std::string>();
  if (!message.contains("id")) {
    if (name == "notifications/cancelled") cancel(client, parameters);
    return nullptr;
  }
  if (!id.is_string() && !id.is_number_integer())
    return failure(nullptr, kInvalidRequest, "the id is neither a text nor a whole number");
  const bool stateless = is_stateless(message);
  if (stateless)
    if (Json problem = envelope_problem(message); !problem.is_null())
      return {{"jsonrpc", "2.0"}, {"id", id}, {"error", std::move(problem)}};
  if (!stateless && name == "initialize") return success(id, initialize(parameters));
  if (!stateless && name == "ping") return success(id, Json::object());
  if (stateless && name == "server/discover") {
    Json result = discover();
    cacheable(result);
    return success(id, std::move(result));
  }
  if (name == "tools/list") {
    Json result = list_tools();
    if (stateless) cacheable(result);
    return success(id, std::move(result));
  }
  if (name == "tools/call") return call_tool(client, message, notify, gone);
  return failure(id, kNoMethod, "there is no method " + name.substr(0, 100));
}

Json McpServer::call_tool(const std::string& client, const Json& message, const Send& notify, const Gone& gone) {
  const Json id = message["id"], given = message.value("params", Json(nullptr));
  const Json parameters = given.is_object() ? given : Json::object();
  const Json name = parameters.value("name", Json(nullptr));
  const Json arguments = parameters.value("arguments", Json::object());
  if (!name.is_string()) return failure(id, kBadParameters, "the name of the tool is missing");
  const Operation* operation = find_operation(name.get<std::string>());
  if (!operation) {
    try {
      known_operation(name.get<std::string>());
    } catch (const Error& error) {
      return failure(id, kBadParameters, error.what());
    }
  }
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  const std::string key = key_of(client, id);
  {
    const std::lock_guard lock(mutex_);
    running_[key] = cancelled;
    const auto now = std::chrono::steady_clock::now();
    while (!early_.empty() && now - early_.front().second > kEarly) early_.pop_front();
    *cancelled = std::erase_if(early_, [&](const auto& one) { return one.first == key; }) > 0;
  }
  ToolControl control(cancelled, progress_token(message), notify, gone);
  Json result;
  try {
    // What a program printed or a file is called must not reach an agent as anything but text that is shown.
    Json told = call_(*operation, arguments, control);
    const Json pictures = picture_contents(told);
    const Json answer = bounded(with_strings_escaped(std::move(told)), kMostResultBytes);
    Json content = text_content(shown_json(answer));
    for (const Json& picture : pictures) content.push_back(picture);
    result = {{"content", std::move(content)}, {"structuredContent", answer}, {"isError", false}};
  } catch (const Error& error) {
    result = tool_error(error.what());
  } catch (const std::bad_alloc&) {
    result = tool_error(kNoMemory);
  } catch (const std::exception& error) {
    result = tool_error(std::string("[internal] ") + error.what() + "; internal error, please report it");
  }
  const std::lock_guard lock(mutex_);
  running_.erase(key);
  if (*cancelled) return nullptr;  // nobody wants the reply to a cancelled request
  if (is_stateless(message)) complete(result);
  return success(id, std::move(result));
}

void McpServer::cancel(const std::string& client, const Json& parameters) {
  const std::lock_guard lock(mutex_);
  const std::string key = key_of(client, parameters.value("requestId", Json(nullptr)));
  const auto found = running_.find(key);
  if (found != running_.end()) {
    *found->second = true;
    return;
  }
  if (early_.size() >= kMostEarly) early_.pop_front();
  early_.emplace_back(key, std::chrono::steady_clock::now());
}

void McpServer::cancel_all(const std::string& client) {
  const std::lock_guard lock(mutex_);
  for (auto& [key, cancelled] : running_)
    if (key.starts_with(client + "\n")) *cancelled = true;
}

}  // namespace lockstep
