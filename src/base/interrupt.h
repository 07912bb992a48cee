// Ctrl-C: the first asks long work to stop at its next check, so that no file is left half written; the second ends the
// process.
#pragma once
#include <chrono>
#include <functional>

namespace lockstep {

void install_interrupt_handler();
bool interrupted();
// Throws Error{kCancelled} after Ctrl-C, and where nobody waits any more for what this thread does.
void check_interrupt(const char* operation);

// For as long as it lives, the work of this thread is for somebody who may leave: `gone` is asked at the checks.
class StopWhen {
 public:
  enum class Asked { kNowAndThen, kAlways };  // at most fifty times a second, where asking costs; at each check
  explicit StopWhen(std::function<bool()> gone, Asked asked = Asked::kNowAndThen);
  ~StopWhen();
  StopWhen(const StopWhen&) = delete;
  StopWhen& operator=(const StopWhen&) = delete;

 private:
  friend void check_interrupt(const char* operation);
  std::function<bool()> gone_;
  std::chrono::milliseconds pause_;  // between two questions
  std::chrono::steady_clock::time_point last_asked_;
  StopWhen* outer_;
};

}  // namespace lockstep
