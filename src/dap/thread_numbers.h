// Threads as the client knows them: 1, 2, 3. What the system calls a thread is too large for clients that keep numbers
// in 32 bits or as floating-point text (Neovim's JSON writes fourteen digits).
#pragma once
#include <cstdint>
#include <map>
#include <mutex>

namespace lockstep {

class ThreadNumbers {
 public:
  int64_t number_of(int64_t thread);        // a new one where it has none yet; 0, no thread, stays 0
  int64_t thread_of(int64_t number) const;  // throws kNotFound
  void forget(int64_t thread);              // it has ended: its number is never given again
  void forget_all();                        // another program: 1 is its main thread again

 private:
  mutable std::mutex mutex_;
  int64_t next_ = 1;
  std::map<int64_t, int64_t> numbers_, threads_;
};

}  // namespace lockstep
