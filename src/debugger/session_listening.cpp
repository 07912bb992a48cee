// The thread of a session that listens: to the program's process, its output, and the part of us inside it.
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "debugger/session.h"
#include "debugger/session_fields.h"

namespace lockstep {
namespace {

std::mutex listener_mutex;
SessionListener& session_listener() {
  static SessionListener listener;
  return listener;
}

void tell_listener(const std::string& session, const Json& event) {
  const std::lock_guard lock(listener_mutex);
  if (session_listener()) session_listener()(session, event);
}

constexpr size_t kMostEvents = 2000;
constexpr double kExitSecs = 30;
// What `break --log` prints among the program's lines; its event and its line of the trace come from the program's
// side.
constexpr std::string_view kLogLine = "lockstep: breakpoint ";

bool resumes(const std::string& operation) {
  return operation == "continue" || operation == "next" || operation == "step" || operation == "finish" ||
         operation == "until";
}

}  // namespace

void Session::listen() {
  for (bool more = true; more;) {
    try {
      more = look();
    } catch (const std::exception&) {
      // No memory for what was said: that is lost, the program's end must not be. It is told again until it is heard.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

bool Session::look() {
  pollfd watched[4];
  nfds_t count = 0;
  const auto watch = [&](int fd) {
    if (fd >= 0) watched[count++] = {fd, POLLIN, 0};
  };
  const int tells = child_->end_descriptor(), grows = tail_.watch_descriptor();
  watch(tells);
  watch(grows);
  if (socket_ && !closed_) watch(socket_->descriptor());
  if (!socket_ && listener_) watch(listener_->descriptor());
  ::poll(watched, count, tells < 0 || grows < 0 || (closed_ && !detached_) ? 50 : 1000);
  // Whether there is something to see; where nothing tells, there may always be.
  const auto moved = [&](int fd) {
    return fd < 0 ||
           std::any_of(watched, watched + count, [fd](const pollfd& one) { return one.fd == fd && one.revents; });
  };

  if (!socket_ && listener_)
    if (const int fd = listener_->accept(); fd >= 0) {
      const std::lock_guard lock(mutex_);
      socket_ = std::make_shared<AgentSocket>(fd);
      closed_ = false;
      listener_.reset();
    }
  ChildEnd end;
  // Before the last look, so that nothing said or printed is missed.
  const bool ended = moved(tells) && child_->try_wait(end);
  if (ended || !looked_ || moved(grows))  // the first time it tells only of what comes
    tail_.read(ended, [this](const std::string& line) {
      if (line.starts_with(kLogLine)) return count_output_line();
      trace_.add("output", {{"text", line}});
      push_event({{"event", "output"}, {"category", "program"}, {"text", line}});
    });
  looked_ = true;
  if (socket_ && !closed_ && (!socket_->receive([this](Json message) { handle(std::move(message)); }) || closed_))
    lose_connection();
  if (closed_ && !ended && !detached_) {
    // A program that hangs up is about to end; one that stays has only lost us. After its last words it may still have
    // threads to wait for.
    const std::lock_guard lock(mutex_);
    detached_ = now_secs() - closed_at_ > (!exited_.is_null() ? kExitSecs : listener_ ? kReturnSecs : kHangUpSecs);
    if (detached_) changed_.notify_all();
  }
  if (ended) finish(end);
  return !ended;
}

void Session::lose_connection() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  closed_at_ = now_secs();
  stopped_.clear();
  returning_ = listen_again();
  changed_.notify_all();
}

// For a program that keeps its stops until a service is there for it: it calls again where it called first.
bool Session::listen_again() {
  if (request_.on_disconnect != "wait" || token_.empty() || !exited_.is_null()) return false;
  listener_.reset();  // first: it takes the name along
  try {
    listener_ = std::make_unique<AgentListener>(identity_.folder);
  } catch (const Error&) {  // it can still be watched and ended
    return false;
  }
  socket_.reset();
  return true;
}

void Session::handle(Json message) {
  if (const auto event = message.find("event"); event != message.end()) {
    if (event->is_string()) handle_event(std::move(message));
    return;
  }
  const std::lock_guard lock(mutex_);
  const int64_t id = whole(message, "id", -1);
  const auto asked = asked_.find(id);
  if (asked == asked_.end()) return;  // whoever asked has given up
  // It goes on after this reply: from here on it is running, and the next stop is a new one.
  const Json resumed = field(field(message, "result"), "resumed");
  if (resumes(asked->second) && is_true(message, "ok") && resumed.is_array())
    for (const Json& thread : resumed)
      if (thread.is_number_integer()) stopped_.erase(thread.get<int64_t>());
  replies_[id] = std::move(message);
  changed_.notify_all();
}

void Session::handle_event(Json event) {
  const std::string kind = text(event, "event");
  {
    const std::lock_guard lock(mutex_);
    if (kind == "hello") {
      if (text(event, "token") != token_) {  // not the program that we started
        closed_ = detached_ = true;
        return;
      }
      event.erase("token");
      greet(event);
    } else if (!connected_) {
      return;
    } else if (kind == "stopped") {
      stopped_[thread_of(event)] = event;
      last_stop_ = event;
      stops_ = std::max(stops_, whole(event, "count", stops_ + 1));  // the program may have told it in its hello
    } else if (kind == "continued") {
      stopped_.erase(thread_of(event));
    } else if (kind == "final") {
      report_ = event;
    } else if (kind == "exited") {
      exited_ = event;
      stopped_.clear();
    } else if (kind == "breakpoint" && (text(event, "change") == "removed" || text(event, "change") == "done")) {
      const auto found = event.find("breakpoint");
      if (found != event.end() && found->is_object()) breakpoints_.erase(whole(*found, "id", -1));
    }
  }
  push_event(std::move(event));
}

// One that calls again says what stands, so that nobody sees it running in between.
void Session::greet(Json hello) {
  if (hello.contains("again")) {
    stopped_.clear();
    stops_ = std::max(stops_, whole(hello, "stops"));
    if (const auto standing = hello.find("stopped"); standing != hello.end() && standing->is_array())
      for (const Json& stop : *standing)
        if (stop.is_object()) last_stop_ = stopped_[thread_of(stop)] = stop;
    trace_.add("reconnected", {{"session_id", identity_.id}, {"stopped_threads", stopped_.size()}});
  }
  hello_ = std::move(hello);
  connected_ = true;
  detached_ = returning_ = false;
  ++connections_;
  changed_.notify_all();
}

void Session::count_output_line() {
  const std::lock_guard lock(mutex_);
  ++output_lines_;
  changed_.notify_all();
}

void set_session_listener(SessionListener listener) {
  const std::lock_guard lock(listener_mutex);
  session_listener() = std::move(listener);
}

void Session::push_event(Json event, bool last) {
  tell_listener(identity_.id, event);
  const std::lock_guard lock(mutex_);
  if (text(event, "category") == "program") ++output_lines_;
  event.erase("number");  // the number is ours, whatever the program says
  Json numbered{{"number", next_event_++}};
  numbered.update(event);
  events_.push_back(std::move(numbered));
  if (events_.size() > kMostEvents) events_.pop_front();
  all_told_ = last;
  changed_.notify_all();
  for (const auto& [number, changed] : followers_) changed();
}

}  // namespace lockstep
