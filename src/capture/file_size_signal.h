// Where a process may not write large files (RLIMIT_FSIZE), a write beyond the limit sends SIGXFSZ, which ends a
// program that does not expect it. Around our writes the signal is held back and taken away: they fail with EFBIG
// instead.
#pragma once
#include <signal.h>
#include <sys/resource.h>

#include "base/platform/spawn.h"

namespace lockstep {

class HoldFileSizeSignal {
 public:
  HoldFileSizeSignal() {
    rlimit limit{};
    active_ = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    if (!active_) return;  // nearly always
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~HoldFileSizeSignal() {
    if (!active_) return;
    if (!was_pending_) take_pending_signal(signal_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HoldFileSizeSignal(const HoldFileSizeSignal&) = delete;
  HoldFileSizeSignal& operator=(const HoldFileSizeSignal&) = delete;

 private:
  bool active_ = false, was_pending_ = false;
  sigset_t signal_{}, before_{};
};

}  // namespace lockstep
