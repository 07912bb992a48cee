// The one device of MLX that the process computes on: its stream, what is not computed yet, and the lock around it all.
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "backend/mlx/leaf/slots.h"

namespace lockstep::mlx {

class Session {
 public:
  Session();
  bool gpu() const { return gpu_; }
  Facts facts() const;

  void mark(Slot& slot);    // its value is new
  void forget(Slot& slot);  // nobody wants it any more
  void flush();
  void synchronize();
  void enter();  // makes this thread's operations go to the session's stream

  std::recursive_mutex mutex;

 private:
  bool gpu_;
  mx::Stream stream_;
  std::vector<Slot*> dirty_;
};

Session& session();

// What failed last on this thread, for Leaf::message.
std::string& last_message();

// Runs `work` alone on the session's stream, and turns what it throws into an outcome.
template <typename Work>
Outcome guarded(Work&& work) noexcept {
  try {
    const std::lock_guard lock(session().mutex);
    session().enter();
    work();
    return Outcome::kDone;
  } catch (const std::bad_alloc&) {
    last_message() = "MLX has no more memory to give";
    return Outcome::kNoMemory;
  } catch (const std::exception& error) {
    try {
      last_message() = error.what();
    } catch (...) {
    }
    return last_message().find("llocate") != std::string::npos ? Outcome::kNoMemory : Outcome::kFailed;
  } catch (...) {
    return Outcome::kFailed;
  }
}

}  // namespace lockstep::mlx
