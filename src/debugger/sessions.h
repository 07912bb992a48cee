// All sessions: the live ones, and what earlier ones have left on disk.
#pragma once
#include "debugger/session.h"

namespace lockstep {

class Sessions {
 public:
  explicit Sessions(fs::path home) : home_(std::move(home)) {}

  fs::path folder() const { return home_ / "sessions"; }
  std::shared_ptr<Session> start(SessionRequest request);
  // Ends it first; same name, same breakpoints. `environment` is for one whose own an earlier service has taken along.
  std::shared_ptr<Session> restart(const std::string& spec, const Environment& environment, bool count_calls);

  // Takes over what a service that was killed has left: programs that run on, and ends that nobody saw.
  void adopt_earlier();

  // By name, id or the start of an id; empty: the one started last. Error{kNotFound, kConflict}.
  std::shared_ptr<Session> find(const std::string& spec) const;
  std::shared_ptr<Session> known(const std::string& spec) const;  // the same, null where there is none
  fs::path folder_of(const std::string& spec) const;              // an earlier one's too
  Json record_of(const std::string& spec) const;  // status of a live one, session.json of an earlier one
  Json list(size_t most, size_t& total) const;    // newest first
  size_t live() const;
  void forget(const std::string& spec);  // an ended one: its folder goes
  void terminate_all();

 private:
  std::shared_ptr<Session> named(const std::string& spec) const;
  SessionIdentity new_identity(const SessionRequest& request) const;
  void drop_old();

  fs::path home_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Session>> sessions_;  // in the order of their start
};

}  // namespace lockstep
