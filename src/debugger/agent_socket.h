// The connection to the part of us that lives in the debugged program: one JSON message a line
// (docs/debugger_protocol.md).
#pragma once
#include <functional>
#include <string>

#include "base/json.h"

namespace lockstep {

inline constexpr size_t kMostMessageBytes = 1 << 20;

// Where the program will call: `agent.sock` in its session's folder, or what a link of that name points to where the
// name is too long for a socket. It is gone from the disk as soon as the program has called, or with this object.
class AgentListener {
 public:
  explicit AgentListener(const fs::path& session_folder);
  ~AgentListener();
  AgentListener(const AgentListener&) = delete;
  AgentListener& operator=(const AgentListener&) = delete;

  const fs::path& path() const { return path_; }
  int descriptor() const { return fd_; }
  int accept();  // -1: it was not our own user, or nobody
  void close();

 private:
  fs::path path_, own_folder_, link_;
  int fd_ = -1;
};

class AgentSocket {
 public:
  explicit AgentSocket(int fd) : fd_(fd) {}
  ~AgentSocket();
  AgentSocket(const AgentSocket&) = delete;
  AgentSocket& operator=(const AgentSocket&) = delete;

  int descriptor() const { return fd_; }
  bool send(const Json& message,
            double timeout_secs) const;  // one write; false: the other side is gone or does not read
  // Everything that is there, without waiting. False: the other side has closed, or has broken the protocol.
  bool receive(const std::function<void(Json)>& use);

 private:
  int fd_;
  std::string pending_;
};

}  // namespace lockstep
