// One debugged program: its process, the connection to the part of us inside it, what it last said, and how it ended.
// A thread of its own listens; everybody else asks and waits.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "debugger/agent_socket.h"
#include "debugger/output_log.h"
#include "debugger/program.h"
#include "debugger/trace.h"

namespace lockstep {

using Cancelled = std::function<bool()>;

struct SessionIdentity {
  std::string id, name;
  fs::path folder;
};

// Told of what happens in any session, by the thread that listens to it: must not block. One for all of them.
using SessionListener = std::function<void(const std::string& session, const Json& event)>;
void set_session_listener(SessionListener listener);

class Session {
 public:
  Session(SessionIdentity identity, SessionRequest request);
  // One that an earlier service has left behind. Its program may call us, and all is as before; else it runs on, and
  // can be watched, ended and restarted.
  Session(SessionIdentity identity, SessionRequest request, const Json& record, const TraceState& left);
  ~Session();  // ends the program
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const SessionIdentity& identity() const { return identity_; }
  const SessionRequest& request() const { return request_; }

  Json status() const;        // session, id, state, stop or end, process, files
  std::string state() const;  // starting, running, stopped, detached or ended
  bool live() const { return state() != "ended"; }
  int64_t stops() const;        // how often it has stopped so far
  int64_t last_output() const;  // lines printed so far

  // Asks the part of us inside the program. Error{kConflict} where the program has ended or does not answer.
  Json ask(const std::string& operation, const Json& arguments, double timeout_secs, const Cancelled& cancelled = {});

  // Until it has stopped once more than `stops` times or has ended; negative: until it stands at all. False: neither,
  // in that time.
  bool wait_for_stop(int64_t stops, double secs, const Cancelled& cancelled,
                     const std::function<void(double)>& progress = {});
  bool wait_for_connection(double secs, const Cancelled& cancelled);
  // Right after the connection was lost, or an earlier service's session taken over: until its program has called, for
  // as long as that may take.
  void wait_for_return();
  bool wait_for_output(int64_t line, double secs, const Cancelled& cancelled);

  void terminate(bool force);

  // What happened after event number `after`, the first of it: {number, event...}. Old ones are dropped.
  struct Events {
    std::vector<Json> fresh;
    bool last = false;  // it has ended, and nothing comes behind these
  };
  Events events(int64_t after) const;
  // Called at each event, by the thread that listens: must not block, nor ask the session. Returns a number for
  // leave().
  int follow(std::function<void()> changed);
  void leave(int follower);

  Json end() const;     // null while it lives
  Json report() const;  // the breakpoints and reasons that it left when it ended; null: none

  // What `break` was asked for, to be asked again by restart.
  void remember_breakpoint(int64_t id, const Json& arguments);
  void forget_breakpoints(const Json& ids);
  Json remembered_breakpoints() const;
  Json remembered_ids() const;

 private:
  void listen();
  bool look();  // false: the program has ended
  void handle(Json message);
  void handle_event(Json event);
  void greet(Json hello);
  void lose_connection();
  bool listen_again();
  void push_event(Json event, bool last = false);
  void count_output_line();
  void finish(const ChildEnd& end);
  void write_record() const;
  bool wait_ended(double secs);
  std::string state_locked() const;
  template <typename Ready>
  bool wait_until(Ready ready, double secs, const Cancelled& cancelled, const std::function<void(double)>& progress);

  SessionIdentity identity_;
  SessionRequest request_;
  std::string token_;
  TraceWriter trace_;
  OutputTail tail_;
  std::unique_ptr<AgentListener> listener_;  // none: nobody will call, or has
  std::unique_ptr<ChildProcess> child_;
  std::shared_ptr<AgentSocket> socket_;  // shared with senders
  std::thread thread_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::mutex sending_;
  int64_t next_id_ = 1, connections_ = 0, stops_ = 0, next_event_ = 1, output_lines_ = 0, memory_kills_ = -1;
  std::map<int64_t, std::string> asked_;  // id → operation
  std::map<int64_t, Json> replies_;
  std::map<int64_t, Json> stopped_;  // thread → its stop
  std::map<int64_t, Json> breakpoints_;
  std::deque<Json> events_;
  std::map<int, std::function<void()>> followers_;
  int next_follower_ = 1;
  Json hello_, last_stop_, exited_, report_, end_;
  bool connected_ = false, closed_ = false, detached_ = false, terminated_ = false;
  bool all_told_ = false;   // the last event was its end
  bool returning_ = false;  // its connection is lost, and it calls again
  bool looked_ = false;     // of the listening thread alone
  double began_ = 0, closed_at_ = 0;
};

}  // namespace lockstep
