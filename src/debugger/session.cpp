#include "debugger/session.h"

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <csignal>

#include "base/error.h"
#include "base/thread.h"
#include "base/token.h"
#include "capture/store.h"
#include "debugger/session_end.h"
#include "debugger/session_fields.h"

namespace lockstep {
namespace {

// An answer to a service that was killed may reach the next one: its numbers must mean nothing there.
int64_t fresh_request_number() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

constexpr const char* kTokenFile = "agent.token";  // in the session's folder, which is the user's alone

std::string kept_token(const fs::path& folder) {
  try {
    return read_text(folder / kTokenFile, 1000);
  } catch (const Error&) {  // an older session: its program does not call twice
    return {};
  }
}

// Most often another Python is meant than the one that was found.
bool is_missing_module(const Json& status, const char* when) {
  const auto found = status.find(when);
  if (found == status.end() || !found->is_object()) return false;
  const auto exception = found->find("exception");
  return exception != found->end() && text(*exception, "type") == "ModuleNotFoundError";
}

[[noreturn]] void refuse(const std::string& operation, const Json& error) {
  const std::string code = text(error, "code"), message = text(error, "message");
  Code kind = Code::kConflict;  // not_stopped, timeout, busy
  if (code == "bad_request" || code == "bad_expression" || code == "raised" || code == "too_large")
    kind = Code::kBadInput;
  else if (code == "not_found")
    kind = Code::kNotFound;
  else if (code == "unsupported")
    kind = Code::kUnsupported;
  else if (code == "internal")
    kind = Code::kDevice;  // the program's side failed; we have not
  std::string hint = text(error, "hint");
  if (hint.empty() && code == "not_stopped") hint = "pause, or wait until it stops";
  Detail detail{.hint = hint};
  if (constexpr std::string_view kExpected = "expected "; hint.starts_with(kExpected))
    detail = {.expected = hint.substr(kExpected.size())};
  fail(kind, operation, message.empty() ? code : message, detail);
}

}  // namespace

Session::Session(SessionIdentity identity, SessionRequest request)
    : identity_(std::move(identity)),
      request_(std::move(request)),
      token_(new_token()),
      trace_(identity_.folder / "trace.jsonl"),
      tail_(identity_.folder / "output.log"),
      listener_(std::make_unique<AgentListener>(identity_.folder)),
      memory_kills_(memory_kills()),
      began_(now_secs()) {
  write_atomically(identity_.folder / kTokenFile, token_);
  fs::permissions(identity_.folder / kTokenFile, fs::perms::owner_read | fs::perms::owner_write);
  child_ = std::make_unique<ChildProcess>(child_for(request_, identity_.folder, listener_->path(), token_));
  trace_.add("session", {{"session_id", identity_.id}, {"name", identity_.name}, {"request", json_from(request_)}});
  write_record();
  thread_ = start_thread("debug", [this] { listen(); });
}

Session::Session(SessionIdentity identity, SessionRequest request, const Json& record, const TraceState& left)
    : identity_(std::move(identity)),
      request_(std::move(request)),
      token_(kept_token(identity_.folder)),
      trace_(identity_.folder / "trace.jsonl"),
      tail_(identity_.folder / "output.log", left.output_lines),
      child_(std::make_unique<ChildProcess>(
          static_cast<pid_t>(whole(record, "pid", -1)),
          static_cast<uint64_t>(std::max<int64_t>(whole(record, "process_start_ticks"), 0)))),
      next_id_(fresh_request_number()),
      stops_(left.stops),
      output_lines_(left.output_lines),
      breakpoints_(left.breakpoints),
      hello_(record),
      last_stop_(left.last_stop),
      report_(record.value("report", Json(nullptr))),
      closed_(true),
      detached_(true),
      began_(now_secs()),
      closed_at_(began_) {
  trace_.add("adopted", {{"session_id", identity_.id}, {"pid", child_->pid()}});
  returning_ = listen_again();
  detached_ = !returning_;
  try {
    thread_ = start_thread("debug", [this] { listen(); });
  } catch (const Error&) {
    static_cast<void>(child_.release());  // whose program lives on without us, as it did before
    throw;
  }
}

Session::~Session() {
  if (live()) terminate(true);
  thread_.join();
}

void Session::finish(const ChildEnd& end) {
  EndEvidence evidence{end, {}, identity_.folder, {}, false, memory_kills_, memory_kills(), true};
  {
    const std::lock_guard lock(mutex_);
    evidence.exited = exited_;
    evidence.last_stop = last_stop_;
    evidence.terminated = terminated_;
    evidence.connected = connected_;
  }
  Json unheard;
  if (!end.seen) {  // its last words were for nobody; the trace has them, and a file of its own
    try {
      evidence.exited = trace_state(identity_.folder / "trace.jsonl").exited;
    } catch (const Error&) {
    }
    try {
      unheard = read_json(identity_.folder / "final.json", 2 * kMostMessageBytes);
    } catch (const Error&) {  // it had none: it was killed, or somebody heard them
    }
  }
  const Json described = describe_end(evidence);
  trace_.add("end", {{"end", described}});
  listener_.reset();
  {
    const std::lock_guard lock(mutex_);
    end_ = described;
    if (report_.is_null() && unheard.is_object()) report_ = std::move(unheard);
    stopped_.clear();
    if (terminated_) child_->signal(SIGKILL, true);  // children that it has left behind
  }
  write_record();
  push_event({{"event", "ended"}, {"end", described}}, true);
}

void Session::write_record() const {
  Json record = status();
  record["request"] = json_from(request_);
  record["report"] = report();
  record["process_start_ticks"] = process_start_ticks(child_->pid());  // tells it from a later one of its number
  try {
    write_atomically(identity_.folder / "session.json", record.dump(1, ' ', false, Json::error_handler_t::replace));
  } catch (const Error&) {  // a full disk must not end the session
  }
}

std::string Session::state_locked() const {
  if (!end_.is_null()) return "ended";
  if (detached_) return "detached";
  if (!stopped_.empty()) return "stopped";
  return connected_ ? "running" : "starting";
}

std::string Session::state() const {
  const std::lock_guard lock(mutex_);
  return state_locked();
}

int64_t Session::stops() const {
  const std::lock_guard lock(mutex_);
  return stops_;
}

int64_t Session::last_output() const {
  const std::lock_guard lock(mutex_);
  return output_lines_;
}

Json Session::end() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

Json Session::report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

Json Session::status() const {
  const std::lock_guard lock(mutex_);
  Json status{{"session", identity_.name}, {"id", identity_.id}, {"state", state_locked()}};
  if (!end_.is_null()) {
    status["end"] = end_;
  } else if (!stopped_.empty()) {
    // The thread that stopped last is the current one; it may have gone on while another still stands.
    const auto current = stopped_.find(thread_of(last_stop_));
    Json stop = current == stopped_.end() ? stopped_.begin()->second : current->second;
    stop.erase("event");
    stop.erase("seq");
    if (const auto place = stop.find("location"); place != stop.end())
      if (const Json code = code_around(*place, 3); !code.is_null()) stop["code"] = code;
    status["stop"] = std::move(stop);
    if (stopped_.size() > 1) status["stopped_threads"] = stopped_.size();
  }
  status["program"] = request_.module.empty() ? request_.script : "-m " + request_.module;
  status["arguments"] = request_.arguments;
  status["cwd"] = request_.cwd.string();
  status["pid"] = child_ ? child_->pid() : -1;
  if (hello_.is_object())
    for (const char* name : {"python", "executable", "engine", "native", "native_reason"})
      if (hello_.contains(name)) status[name] = hello_[name];
  if (is_missing_module(status, "stop") || is_missing_module(status, "end"))
    status["hint"] = fmt::format("the program runs in {}; another: debug start --python PATH {}",
                                 text(status, "executable"), text(status, "program"));
  status["stops"] = stops_;
  status["breakpoints"] = breakpoints_.size();
  status["output_lines"] = output_lines_;
  status["events"] = next_event_ - 1;
  status["secs"] = std::round((now_secs() - began_) * 1000) / 1000;
  status["output"] = (identity_.folder / "output.log").string();
  status["trace"] = (identity_.folder / "trace.jsonl").string();
  return status;
}

Json Session::ask(const std::string& operation, const Json& arguments, double timeout_secs,
                  const Cancelled& cancelled) {
  std::shared_ptr<AgentSocket> socket;
  int64_t id = 0, connection = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!end_.is_null())
      fail(Code::kConflict, operation, "the program has ended: " + text(end_, "description"), {.hint = "restart"});
    if (detached_)
      fail(Code::kConflict, operation, "the program runs on without the debugger, whose service was lost",
           {.hint = "debug log, debug wait, debug terminate or debug restart"});
    if (!socket_ || !connected_ || closed_)
      fail(Code::kConflict, operation, "the program is not connected", {.got = state_locked(), .hint = "status"});
    socket = socket_;
    connection = connections_;
    id = next_id_++;
    asked_[id] = operation;
  }
  bool sent = false;
  {
    const std::lock_guard lock(sending_);
    sent = socket->send({{"id", id}, {"op", operation}, {"args", arguments}}, timeout_secs);
  }
  bool answered = false;
  const auto lost = [&] { return !end_.is_null() || closed_ || connections_ != connection; };
  const auto ready = [&] { return replies_.contains(id) || lost(); };
  if (sent) answered = wait_until(ready, timeout_secs, cancelled, {});
  const std::lock_guard lock(mutex_);
  asked_.erase(id);
  const auto reply = replies_.find(id);
  if (reply == replies_.end()) {
    if (!answered && cancelled && cancelled()) fail(Code::kCancelled, operation, "cancelled");
    if (lost())
      fail(Code::kConflict, operation,
           end_.is_null() ? "the connection to the program was lost before it could answer"
                          : "the program ended before it could answer",
           {.got = text(end_, "description"), .hint = "status"});
    fail(Code::kConflict, operation, "the program does not answer",
         {.hint = "again later: it sits in C code that lets no Python run; or terminate"});
  }
  Json answer = std::move(reply->second);
  replies_.erase(reply);
  if (!is_true(answer, "ok")) refuse(operation, field(answer, "error"));
  const auto result = answer.find("result");  // moved: a deep stack is a large tree
  return result == answer.end() ? Json::object() : std::move(*result);
}

template <typename Ready>
bool Session::wait_until(Ready ready, double secs, const Cancelled& cancelled,
                         const std::function<void(double)>& progress) {
  const double began = now_secs();
  double told = began;
  std::unique_lock lock(mutex_);
  while (!ready()) {
    const double now = now_secs();
    if (now - began >= secs) return false;
    const double slice = std::min(secs - (now - began), 0.05);  // how soon a cancelled call is noticed
    changed_.wait_for(lock, std::chrono::duration<double>(slice));
    if (ready()) return true;
    lock.unlock();
    const bool stop = cancelled && cancelled();
    if (progress && now_secs() - told >= 1) {
      told = now_secs();
      progress(told - began);
    }
    lock.lock();
    if (stop) return ready();
  }
  return true;
}

bool Session::wait_for_stop(int64_t stops, double secs, const Cancelled& cancelled,
                            const std::function<void(double)>& progress) {
  const bool was_detached = state() == "detached";  // it will not stop again; its end can be waited for
  return wait_until(
      [&] {
        return !end_.is_null() || (detached_ && !was_detached) || (stops < 0 ? !stopped_.empty() : stops_ > stops);
      },
      secs, cancelled, progress);
}

bool Session::wait_for_connection(double secs, const Cancelled& cancelled) {
  return wait_until([&] { return !end_.is_null() || detached_ || connected_; }, secs, cancelled, {});
}

void Session::wait_for_return() {
  wait_until([&] { return !end_.is_null() || detached_ || !returning_; }, kReturnSecs, {}, {});
}

bool Session::wait_for_output(int64_t line, double secs, const Cancelled& cancelled) {
  return wait_until([&] { return !end_.is_null() || output_lines_ >= line; }, secs, cancelled, {});
}

bool Session::wait_ended(double secs) {
  return wait_until([&] { return !end_.is_null(); }, secs, {}, {});
}

void Session::terminate(bool force) {
  {
    const std::lock_guard lock(mutex_);
    if (!end_.is_null()) return;
    terminated_ = true;
  }
  if (!force) {
    bool heard = true;
    try {
      ask("terminate", Json::object(), 2);
    } catch (const Error&) {  // it does not listen: the signals below do not ask
      heard = false;
    }
    if (wait_ended(heard ? 3 : 0)) return;
    child_->signal(SIGTERM, true);
    if (wait_ended(1)) return;
  }
  child_->signal(SIGKILL, true);
  wait_ended(10);
}

Session::Events Session::events(int64_t after) const {
  const std::lock_guard lock(mutex_);
  Events told;
  for (const Json& event : events_)
    if (whole(event, "number") > after && told.fresh.size() < 200) told.fresh.push_back(event);
  const int64_t newest = told.fresh.empty() ? after : whole(told.fresh.back(), "number");
  told.last = all_told_ && newest >= next_event_ - 1;
  return told;
}

int Session::follow(std::function<void()> changed) {
  const std::lock_guard lock(mutex_);
  followers_[next_follower_] = std::move(changed);
  return next_follower_++;
}

void Session::leave(int follower) {
  const std::lock_guard lock(mutex_);
  followers_.erase(follower);
}

void Session::remember_breakpoint(int64_t id, const Json& arguments) {
  const std::lock_guard lock(mutex_);
  breakpoints_[id] = arguments;
}

void Session::forget_breakpoints(const Json& ids) {
  const std::lock_guard lock(mutex_);
  if (!ids.is_array()) return;
  for (const Json& id : ids)
    if (id.is_number_integer()) breakpoints_.erase(id.get<int64_t>());
}

Json Session::remembered_breakpoints() const {
  const std::lock_guard lock(mutex_);
  Json all = Json::array();
  for (const auto& [id, arguments] : breakpoints_) all.push_back(arguments);
  return all;
}

Json Session::remembered_ids() const {
  const std::lock_guard lock(mutex_);
  Json all = Json::array();
  for (const auto& [id, arguments] : breakpoints_) all.push_back(id);
  return all;
}

}  // namespace lockstep
