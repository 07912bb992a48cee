// Threads that cannot be started are an error with words, not the end of the process.
#pragma once
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace lockstep {

// Error{kMemory} where the system starts no more threads (ulimit -u, ulimit -v, a container's limit).
template <typename Work>
std::thread start_thread(std::string_view operation, Work&& work) {
  try {
    return std::thread(std::forward<Work>(work));
  } catch (const std::system_error& error) {
    fail(Code::kMemory, operation, std::string("the system starts no more threads: ") + error.code().message(),
         {.hint = "a higher limit (ulimit -u, ulimit -v)"});
  }
}

// A thread that ends with its scope: whoever made it tells it to stop before.
class JoinedThread {
 public:
  JoinedThread() = default;
  explicit JoinedThread(std::thread thread) : thread_(std::move(thread)) {}
  ~JoinedThread() {
    if (thread_.joinable()) thread_.join();
  }
  JoinedThread(JoinedThread&&) = default;
  JoinedThread& operator=(JoinedThread&&) = delete;

 private:
  std::thread thread_;
};

}  // namespace lockstep
