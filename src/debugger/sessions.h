// All sessions: the live ones, and what earlier ones have left on disk.
#pragma once
#include "debugger/session.h"

namespace lockstep {

class Sessions {
 public:
  explicit Sessions(fs::path home) : home_(std::move(home)) {}

  fs::path folder() const { return home_ / "sessions"; }
  std::shared_ptr<Session> start(SessionRequest request);
  std::shared_ptr<Session> restart(const std::string& spec);  // ends it first; same name, same breakpoints

  // By name, id or the start of an id; empty: the one started last. Error{kNotFound, kConflict}.
  std::shared_ptr<Session> find(const std::string& spec) const;
  fs::path folder_of(const std::string& spec) const;  // an earlier one's too
  Json record_of(const std::string& spec) const;      // status of a live one, session.json of an earlier one
  Json list(size_t most, size_t& total) const;        // newest first
  size_t live() const;
  void forget(const std::string& spec);  // an ended one: its folder goes
  void terminate_all();

 private:
  std::shared_ptr<Session> known(const std::string& spec) const;
  SessionIdentity new_identity(const SessionRequest& request) const;
  void drop_old();

  fs::path home_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Session>> sessions_;  // in the order of their start
};

}  // namespace lockstep
