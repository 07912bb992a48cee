#include "base/interrupt.h"

#include <sys/time.h>
#include <unistd.h>

#include <csignal>

#include "base/ends_soon.h"
#include "base/error.h"

namespace lockstep {
namespace {
volatile std::sig_atomic_t interrupt_count = 0;
thread_local StopWhen* innermost_stop = nullptr;
volatile std::sig_atomic_t ends_soon = 0;
constexpr int kInterruptedStatus = 130;
constexpr suseconds_t kPatienceMicroseconds = 800000;

void end_now(int) {
  _exit(kInterruptedStatus);
}

// Only what a signal's handler may do.
void wait_no_longer_than(suseconds_t microseconds) {
  struct itimerval timer = {};
  timer.it_value.tv_usec = microseconds;
  setitimer(ITIMER_REAL, &timer, nullptr);
}

void on_interrupt(int) {
  interrupt_count = interrupt_count + 1;
  if (ends_soon) wait_no_longer_than(kPatienceMicroseconds);
  if (interrupt_count > 1) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
}
}  // namespace

void install_interrupt_handler() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
}

EndsSoonAfterInterrupt::EndsSoonAfterInterrupt() {
  std::signal(SIGALRM, end_now);
  ends_soon = 1;
}

EndsSoonAfterInterrupt::~EndsSoonAfterInterrupt() {
  ends_soon = 0;
  wait_no_longer_than(0);
  std::signal(SIGALRM, SIG_DFL);
}

bool interrupted() {
  return interrupt_count > 0;
}

StopWhen::StopWhen(std::function<bool()> gone, Asked asked)
    : gone_(std::move(gone)), pause_(asked == Asked::kAlways ? 0 : 20), outer_(innermost_stop) {
  innermost_stop = this;
}

StopWhen::~StopWhen() {
  innermost_stop = outer_;
}

void check_interrupt(const char* operation) {
  if (interrupted()) fail(Code::kCancelled, operation, "interrupted");
  StopWhen* const stop = innermost_stop;
  if (!stop) return;
  if (stop->pause_.count() > 0) {
    const auto now = std::chrono::steady_clock::now();
    if (now - stop->last_asked_ < stop->pause_) return;
    stop->last_asked_ = now;
  }
  if (stop->gone_()) fail(Code::kCancelled, operation, "nobody waits for this any more");
}

}  // namespace lockstep
