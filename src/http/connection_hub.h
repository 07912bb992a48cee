// Connections that wait without a thread: event streams, and requests whose answer takes long. One thread watches them
// all, writes what others hand in, and notices who has hung up.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/platform/ready_sockets.h"

namespace lockstep {

class ConnectionHub;

class WaitingConnection : public std::enable_shared_from_this<WaitingConnection> {
 public:
  WaitingConnection(ConnectionHub& hub, size_t most_bytes, bool beats)
      : hub_(hub), most_bytes_(most_bytes), beats_(beats) {}
  ~WaitingConnection();

  void send(const std::string& bytes);         // from any thread, never blocks; nothing happens once it is gone
  void finish(const std::string& bytes = {});  // the last of it: sent at once where that is possible, then closed
  // Asked by the hub's thread whenever everything is sent, after each call of ask(): the next piece, for a source that
  // bounds what waits by itself. False: that was the last. Before it is attached.
  void fill_from(std::function<bool(std::string& piece)> source) { source_ = std::move(source); }
  void ask();  // the source has something
  bool gone() const { return gone_; }
  void when_gone(std::function<void()> call);  // once, when the client leaves before the end; before it is attached

 private:
  friend class ConnectionHub;
  ConnectionHub& hub_;
  const size_t most_bytes_;  // that may wait for a slow reader
  const bool beats_;         // a comment now and then shows that we are there
  std::mutex mutex_;
  std::string pending_;   // handed in, not yet taken by the hub's thread
  size_t unsent_ = 0;     // of what it has taken
  std::string outgoing_;  // what it has taken; of the hub's thread, as sent_ is
  size_t sent_ = 0;       // of outgoing_
  bool finished_ = false, overrun_ = false, lingers_ = false;
  std::function<void()> when_gone_;
  std::function<bool(std::string& piece)> source_;
  std::atomic<bool> gone_{false};
  int fd_ = -1;  // set and closed under the lock, by the hub
  std::chrono::steady_clock::time_point attached_, progressed_, beaten_;
};

class ConnectionHub {
 public:
  explicit ConnectionHub(size_t most_connections);
  ~ConnectionHub();
  ConnectionHub(const ConnectionHub&) = delete;
  ConnectionHub& operator=(const ConnectionHub&) = delete;

  // One that is not on the line yet: what is sent to it waits. Null: too many.
  std::shared_ptr<WaitingConnection> make(size_t most_bytes, bool beats);
  void attach(const std::shared_ptr<WaitingConnection>& connection, int fd);  // the socket is the hub's from now on
  // Of a connection that has been answered: closed once the client closes it, or a moment later. What it still sends is
  // read away; closing on it would reset the connection, and the client would lose our answer.
  void linger(int fd);
  size_t connections() const { return count_; }
  void stop();  // everybody is hung up on

 private:
  friend class WaitingConnection;
  void touch(WaitingConnection& connection);  // it has something to send, or to read away
  void run();
  void serve(const std::shared_ptr<WaitingConnection>& connection, bool hung_up);
  enum class Sent { kPart, kAll, kLast, kLost };
  Sent send_pending(WaitingConnection& connection);
  void close(const std::shared_ptr<WaitingConnection>& connection, bool left);

  ReadySockets sockets_;
  const size_t most_;
  std::atomic<size_t> count_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::unordered_map<int, std::shared_ptr<WaitingConnection>> attached_;
  std::vector<std::weak_ptr<WaitingConnection>> touched_;
  std::thread thread_;
};

}  // namespace lockstep
