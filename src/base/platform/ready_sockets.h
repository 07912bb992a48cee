// Many sockets watched by one thread: told once each time one of them changes.
#pragma once
#include <chrono>
#include <vector>

namespace lockstep {

class ReadySockets {
 public:
  ReadySockets() = default;
  ~ReadySockets();
  ReadySockets(const ReadySockets&) = delete;
  ReadySockets& operator=(const ReadySockets&) = delete;

  bool open();               // false: the system gives no descriptors
  void add(int fd);          // one that never blocks: told of what comes and of hang-ups
  void expect_room(int fd);  // it took no more: told, too, once it does
  void remove(int fd);       // before it is closed
  void wake();               // from any thread: wait() returns

  struct Ready {
    int fd;
    bool hung_up;
  };
  // What has changed since it was told the last time, at most 256 at once; nothing when `most` has passed.
  std::vector<Ready> wait(std::chrono::milliseconds most);

 private:
  int events_ = -1;
  [[maybe_unused]] int wakeup_ = -1;  // where waking needs a descriptor
};

}  // namespace lockstep
