// The threads that serve connections: a fixed number that all exist before the first connection is taken, and no queue
// beyond them. While all are busy nobody is accepted, and the system holds the rest off. The one that came free last is
// the next to serve: its memory is still in the caches.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {

// Connections without a thread, and threads without a connection.
struct Load {
  std::atomic<int> waiting{0}, free{0};
  bool is_full() const { return waiting > free; }
};

class ServingThreads {
 public:
  ServingThreads(int threads, Load& load);  // Error{kMemory} where the system does not start so many
  ~ServingThreads() { shutdown(); }
  ServingThreads(const ServingThreads&) = delete;
  ServingThreads& operator=(const ServingThreads&) = delete;

  void enqueue(std::function<void()> job);  // waits until there is room
  void shutdown();                          // what was taken is finished

 private:
  void work();

  std::vector<std::thread> threads_;
  size_t most_jobs_;
  std::deque<std::function<void()>> jobs_;
  std::mutex mutex_;
  std::vector<std::condition_variable*> idle_;  // of each thread that waits, in the order in which they came
  std::condition_variable taken_;
  Load& load_;
  bool stopping_ = false;
};

}  // namespace lockstep
