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

namespace lockstep {

class ConnectionHub;

class WaitingConnection : public std::enable_shared_from_this<WaitingConnection> {
 public:
  WaitingConnection(ConnectionHub& hub, size_t most_bytes, bool beats)
      : hub_(hub), most_bytes_(most_bytes), beats_(beats) {}
  ~WaitingConnection();

  void send(const std::string& bytes);         // from any thread, never blocks; nothing happens once it is gone
  void finish(const std::string& bytes = {});  // the last of it: closed once it is sent
  bool gone() const { return gone_; }
  void when_gone(std::function<void()> call);  // once, when the client leaves before the end; before it is attached

 private:
  friend class ConnectionHub;
  ConnectionHub& hub_;
  const size_t most_bytes_;  // that may wait for a slow reader
  const bool beats_;         // a comment now and then shows that we are there
  std::mutex mutex_;
  std::string pending_;
  size_t sent_ = 0;  // of pending_
  bool finished_ = false, overrun_ = false;
  std::function<void()> when_gone_;
  std::atomic<bool> gone_{false};
  int fd_ = -1;  // of the hub's thread, once attached
  std::chrono::steady_clock::time_point progressed_, beaten_;
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
  size_t connections() const { return count_; }
  void stop();  // everybody is hung up on

 private:
  friend class WaitingConnection;
  void wake();
  void run();
  void serve(const std::shared_ptr<WaitingConnection>& connection, bool hung_up);
  void close(const std::shared_ptr<WaitingConnection>& connection, bool left);

  int epoll_ = -1, wakeup_ = -1;
  const size_t most_;
  std::atomic<size_t> count_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::unordered_map<int, std::shared_ptr<WaitingConnection>> attached_;
  std::vector<std::weak_ptr<WaitingConnection>> touched_;  // have something to send
  std::thread thread_;
};

}  // namespace lockstep
