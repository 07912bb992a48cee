// One client of the Debug Adapter Protocol: its requests become operations of the one table, and what happens to the
// program becomes events. Transports hand in messages and carry away bytes; the service is wherever `DapService` says.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dap/references.h"
#include "dap/thread_numbers.h"
#include "service/service.h"

namespace lockstep {

struct DapService {
  std::function<Json(const Operation&, const Json& arguments, CallControl&)> call;
  // Hands on what happens in a session after event number `after`, until `use` says false, `cancelled` says true, or
  // there is nothing more to come. A service that took the session over from another tells all it knows: it counts
  // anew.
  std::function<void(const std::string& session, int64_t after, const std::function<bool(const Json& event)>& use,
                     const std::function<bool()>& cancelled)>
      follow;
};

class DapAdapter {
 public:
  using Send = std::function<void(const std::string& bytes)>;

  DapAdapter(DapService service, Send send);
  ~DapAdapter();
  DapAdapter(const DapAdapter&) = delete;
  DapAdapter& operator=(const DapAdapter&) = delete;

  void receive(Json message);  // from the transport; answered in the order of their arrival, by a thread of its own
  void answer(const Json& message);  // now, by this thread
  bool done() const { return done_; }
  void close();  // the client has gone: what it started ends, what it attached to goes on

 private:
  using Handler = Json (DapAdapter::*)(const Json& arguments, CallControl& control);
  struct Set {             // a breakpoint of the client's
    int64_t id = 0;        // the client's number
    int64_t number = -1;   // the program's; -1: it is not set
    Json arguments, last;  // of `debug break`; what was last told of it
  };
  static const std::map<std::string, Handler>& handlers();

  // adapter.cpp
  void work();
  Json call(const char* operation, Json arguments, CallControl& control);
  void respond(const Json& request, Json body);
  void refuse(const Json& request, const std::string& message, const std::string& brief = {});
  void event(const char* name, Json body = nullptr);
  void send(Json message);
  void then(std::function<void()> action) { after_.push_back(std::move(action)); }  // once the answer is out
  std::string session() const;
  Json cancel_request(const Json&, CallControl&);
  Json operation_request(const Json&, CallControl&);

  // adapter_start.cpp
  Json initialize(const Json&, CallControl&);
  Json launch(const Json&, CallControl&);
  Json attach(const Json&, CallControl&);
  Json configuration_done(const Json&, CallControl&);
  Json restart(const Json&, CallControl&);
  Json terminate(const Json&, CallControl&);
  Json disconnect(const Json&, CallControl&);
  void begin(const Json& status, int64_t after_event);
  void let_go(bool terminate, bool suspend, CallControl& control);
  std::string attached_session(const Json& arguments, CallControl& control);
  void tell_standing_threads(CallControl& control);

  // adapter_break.cpp
  Json set_breakpoints(const Json&, CallControl&);
  Json set_function_breakpoints(const Json&, CallControl&);
  Json set_exception_breakpoints(const Json&, CallControl&);
  Json breakpoint_locations(const Json&, CallControl&);
  Json replace_breakpoints(const std::string& key, const std::vector<Json>& wanted, CallControl& control);
  void set_one(Set& one, CallControl& control);
  void set_again(CallControl& control);
  void remove_all(CallControl& control);
  Json shown_breakpoint(const Set& one);
  void breakpoint_changed(const Json& event);
  Json client_numbers(const Json& numbers);

  // adapter_run.cpp
  Json go_on(const Json&, CallControl&);
  Json next(const Json&, CallControl&);
  Json step_in(const Json&, CallControl&);
  Json step_out(const Json&, CallControl&);
  Json pause(const Json&, CallControl&);
  Json resume(const char* operation, const Json& arguments, Json wanted, CallControl& control);

  // adapter_look.cpp, adapter_values.cpp
  Json threads(const Json&, CallControl&);
  Json stack_trace(const Json&, CallControl&);
  Json scopes(const Json&, CallControl&);
  Json exception_info(const Json&, CallControl&);
  Json variables(const Json&, CallControl&);
  Json evaluate(const Json&, CallControl&);
  Json set_variable(const Json&, CallControl&);
  Json set_expression(const Json&, CallControl&);
  Json completions(const Json&, CallControl&);
  Json tensor_picture(const Json&, CallControl&);
  FrameReference frame_of(const Json& arguments);
  Json statistics_of(const OpenReference& opened, CallControl& control);
  Json part_from(const Json& told, int64_t holder, const FrameReference& frame);

  // adapter_sources.cpp
  Json source(const Json&, CallControl&);
  Json modules(const Json&, CallControl&);
  Json loaded_sources(const Json&, CallControl&);
  Json source_of(const std::string& file, const std::string& hint = {});
  std::vector<Json> loaded_files(CallControl& control);
  void tell_loaded();

  // adapter_events.cpp
  void follow(const std::string& session, int64_t after, int64_t epoch);
  void translate(const Json& event);
  void stopped(const Json& event);
  void ended(const Json& event);
  void stopped_event(const Json& stop);
  void tell_thread(int64_t id);
  void tell_threads_gone();

  DapService service_;
  Send send_;
  std::atomic<bool> done_{false}, gone_{false};

  std::mutex sending_;
  int64_t next_seq_ = 1;

  // The worker and its queue.
  std::mutex queue_mutex_;
  std::condition_variable queued_;
  std::deque<Json> queue_;
  bool closing_ = false;
  std::map<int64_t, std::shared_ptr<std::atomic<bool>>> running_;  // request → cancelled
  std::thread worker_;
  std::vector<std::function<void()>> after_;  // of the worker alone
  Json request_;                              // that it is answering

  // A request that lets the program go on is answered before the stop that follows is told.
  std::mutex order_;

  mutable std::mutex state_mutex_;
  std::string session_;
  std::atomic<bool> launched_{false}, configured_{false}, stop_on_entry_{false}, no_debug_{false};
  std::atomic<bool> only_own_code_{true}, ended_{false};
  int64_t epoch_ = 0;                // counts sessions that were followed
  std::set<int64_t> own_resumed_;    // threads whose going on the client knows of
  std::map<int64_t, Json> stops_;    // thread → where it stands
  std::set<int64_t> known_threads_;  // that the client was told of; under order_
  int64_t modules_told_ = 0, modules_seen_ = -1;
  Json launch_arguments_;

  int first_line_ = 1, first_column_ = 1;  // how the client counts
  References references_;
  ThreadNumbers threads_;
  std::map<std::string, std::vector<Set>>
      breakpoints_;  // source file, or "" for functions; of the worker, under order_
  int64_t next_breakpoint_ = 1;
  std::vector<std::string> shown_sources_;  // files that the client cannot open itself, by their number - 1
  std::vector<std::thread> followers_;
};

Json dap_capabilities();

// On stdin and stdout until the client has gone. Returns the exit status.
int serve_dap_stdio(const DapService& service);
// On a port of this machine, 0 for any, for programs of the same user; each connection is a client of its own. `ready`
// is called with the port. Until `interrupted`.
int serve_dap_port(const DapService& service, int port, const std::function<void(int port)>& ready,
                   const std::function<bool()>& interrupted);

}  // namespace lockstep
