#include "dap/adapter.h"

#include "base/error.h"
#include "base/thread.h"
#include "dap/fields.h"
#include "dap/message.h"

namespace lockstep {
namespace {

constexpr size_t kMostQueued = 1000;

class RequestControl : public CallControl {
 public:
  explicit RequestControl(std::shared_ptr<std::atomic<bool>> cancelled) : cancelled_(std::move(cancelled)) {}
  bool cancelled() const override { return *cancelled_; }

 private:
  std::shared_ptr<std::atomic<bool>> cancelled_;
};

bool ends_waiting(const std::string& command) {
  return command == "terminate" || command == "disconnect" || command == "restart";
}

}  // namespace

DapAdapter::DapAdapter(DapService service, Send send) : service_(std::move(service)), send_(std::move(send)) {
  worker_ = start_thread("dap", [this] { work(); });
}

DapAdapter::~DapAdapter() {
  {
    const std::lock_guard lock(queue_mutex_);
    closing_ = true;
    for (auto& [number, cancelled] : running_) *cancelled = true;
  }
  queued_.notify_all();
  worker_.join();
  {
    const std::lock_guard lock(state_mutex_);
    ++epoch_;
  }
  for (std::thread& follower : followers_) follower.join();
}

const std::map<std::string, DapAdapter::Handler>& DapAdapter::handlers() {
  static const std::map<std::string, Handler> all{{"initialize", &DapAdapter::initialize},
                                                  {"launch", &DapAdapter::launch},
                                                  {"attach", &DapAdapter::attach},
                                                  {"configurationDone", &DapAdapter::configuration_done},
                                                  {"restart", &DapAdapter::restart},
                                                  {"terminate", &DapAdapter::terminate},
                                                  {"disconnect", &DapAdapter::disconnect},
                                                  {"setBreakpoints", &DapAdapter::set_breakpoints},
                                                  {"setFunctionBreakpoints", &DapAdapter::set_function_breakpoints},
                                                  {"setExceptionBreakpoints", &DapAdapter::set_exception_breakpoints},
                                                  {"breakpointLocations", &DapAdapter::breakpoint_locations},
                                                  {"continue", &DapAdapter::go_on},
                                                  {"next", &DapAdapter::next},
                                                  {"stepIn", &DapAdapter::step_in},
                                                  {"stepOut", &DapAdapter::step_out},
                                                  {"pause", &DapAdapter::pause},
                                                  {"threads", &DapAdapter::threads},
                                                  {"stackTrace", &DapAdapter::stack_trace},
                                                  {"scopes", &DapAdapter::scopes},
                                                  {"variables", &DapAdapter::variables},
                                                  {"evaluate", &DapAdapter::evaluate},
                                                  {"setVariable", &DapAdapter::set_variable},
                                                  {"setExpression", &DapAdapter::set_expression},
                                                  {"completions", &DapAdapter::completions},
                                                  {"exceptionInfo", &DapAdapter::exception_info},
                                                  {"source", &DapAdapter::source},
                                                  {"modules", &DapAdapter::modules},
                                                  {"loadedSources", &DapAdapter::loaded_sources},
                                                  {"cancel", &DapAdapter::cancel_request},
                                                  {"lockstep/tensorPicture", &DapAdapter::tensor_picture},
                                                  {"lockstep/operation", &DapAdapter::operation_request}};
  return all;
}

void DapAdapter::receive(Json message) {
  const std::string command = dap::text(message, "command");
  const int64_t number = dap::whole(message, "seq", -1);
  std::unique_lock lock(queue_mutex_);
  if (closing_) return;
  if (command == "cancel") {
    // Now, not behind what it cancels; the answer keeps its place.
    const int64_t which = dap::whole(dap::field(message, "arguments"), "requestId", -1);
    if (const auto found = running_.find(which); found != running_.end()) *found->second = true;
  } else if (ends_waiting(command)) {
    for (auto& [other, cancelled] : running_) *cancelled = true;
  }
  if (queue_.size() >= kMostQueued) {
    lock.unlock();
    refuse(message, "too many requests are waiting");
    return;
  }
  if (dap::text(message, "type") == "request" && command != "cancel")
    running_[number] = std::make_shared<std::atomic<bool>>(false);
  queue_.push_back(std::move(message));
  queued_.notify_one();
}

void DapAdapter::work() {
  while (true) {
    Json message;
    {
      std::unique_lock lock(queue_mutex_);
      queued_.wait(lock, [this] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      message = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      answer(message);
    } catch (const std::exception&) {  // no memory for the refusal
    }
    const std::lock_guard lock(queue_mutex_);
    running_.erase(dap::whole(message, "seq", -1));
  }
}

void DapAdapter::answer(const Json& message) {
  if (dap::text(message, "type") != "request") return;  // we ask nothing, so that nothing is answered
  const std::string command = dap::text(message, "command");
  std::shared_ptr<std::atomic<bool>> cancelled;
  {
    const std::lock_guard lock(queue_mutex_);
    if (const auto found = running_.find(dap::whole(message, "seq", -1)); found != running_.end())
      cancelled = found->second;
  }
  if (!cancelled) cancelled = std::make_shared<std::atomic<bool>>(false);
  RequestControl control(cancelled);
  after_.clear();
  request_ = message;
  try {
    const auto found = handlers().find(command);
    if (found == handlers().end())
      fail(Code::kUnsupported, "dap", "there is no request '" + command.substr(0, 100) + "'");
    if (*cancelled && command != "disconnect") fail(Code::kCancelled, command, "cancelled");
    const Json arguments = dap::field(message, "arguments");
    Json body = (this->*found->second)(arguments.is_object() ? arguments : Json::object(), control);
    if (!body.is_boolean()) respond(message, std::move(body));  // true: it has been answered already
  } catch (const Error& error) {
    refuse(message, error.what(), error.code() == Code::kCancelled ? "cancelled" : "");
    after_.clear();
  } catch (const std::bad_alloc&) {
    refuse(message, "[memory] the system has no more memory to give");
    after_.clear();
  } catch (const std::exception& error) {
    refuse(message, std::string("[internal] ") + error.what() + "; internal error, please report it");
    after_.clear();
  }
  for (const auto& action : std::exchange(after_, {})) try {
      action();
    } catch (const Error& error) {
      event("output", {{"category", "console"}, {"output", std::string(error.what()) + "\n"}});
    }
  if (command == "disconnect") done_ = true;
}

Json DapAdapter::call(const char* operation, Json arguments, CallControl& control) {
  const std::string session = this->session();
  if (session.empty()) fail(Code::kConflict, "dap", "no program is debugged yet", {.hint = "launch or attach"});
  arguments["session"] = session;
  return service_.call(known_operation(operation), arguments, control);
}

std::string DapAdapter::session() const {
  const std::lock_guard lock(state_mutex_);
  return session_;
}

void DapAdapter::send(Json message) {
  const std::lock_guard lock(sending_);
  if (gone_) return;  // nobody reads it
  Json numbered{{"seq", next_seq_++}};
  numbered.update(message);
  send_(dap_frame(numbered));
}

void DapAdapter::respond(const Json& request, Json body) {
  Json message{{"type", "response"},
               {"request_seq", dap::whole(request, "seq")},
               {"success", true},
               {"command", dap::text(request, "command")}};
  if (!body.is_null()) message["body"] = std::move(body);
  send(std::move(message));
}

void DapAdapter::refuse(const Json& request, const std::string& message, const std::string& brief) {
  send({{"type", "response"},
        {"request_seq", dap::whole(request, "seq")},
        {"success", false},
        {"command", dap::text(request, "command")},
        {"message", brief.empty() ? message : brief},
        {"body", {{"error", {{"id", 1}, {"format", message}, {"showUser", true}}}}}});
}

void DapAdapter::event(const char* name, Json body) {
  Json message{{"type", "event"}, {"event", name}};
  if (!body.is_null()) message["body"] = std::move(body);
  send(std::move(message));
}

Json DapAdapter::cancel_request(const Json&, CallControl&) {
  return nullptr;  // done when it came
}

// Every row of the table, for a client that knows it: breakpoints on data, why one did not stop, counts.
Json DapAdapter::operation_request(const Json& arguments, CallControl& control) {
  const Operation& operation = known_operation(dap::text(arguments, "operation"));
  Json given = dap::field(arguments, "arguments");
  if (!given.is_object()) given = Json::object();
  const bool takes_session = arguments_schema(operation)["properties"].contains("session");
  if (takes_session && !given.contains("session") && !session().empty()) given["session"] = session();
  return service_.call(operation, given, control);
}

void DapAdapter::close() {
  {
    const std::lock_guard lock(queue_mutex_);
    queue_.clear();
    for (auto& [number, cancelled] : running_) *cancelled = true;
    if (done_ || closing_) return;
    gone_ = true;
  }
  receive({{"seq", -2}, {"type", "request"}, {"command", "disconnect"}, {"arguments", Json::object()}});
}

}  // namespace lockstep
