// For work that no check reaches in time: an interrupt ends it all the same.
#pragma once

namespace lockstep {

// While one lives, an interrupt that no check has answered within a second ends the process with status 130. For work
// that writes whole files or none: whatever it is busy with, nothing is lost.
class EndsSoonAfterInterrupt {
 public:
  EndsSoonAfterInterrupt();
  ~EndsSoonAfterInterrupt();
  EndsSoonAfterInterrupt(const EndsSoonAfterInterrupt&) = delete;
  EndsSoonAfterInterrupt& operator=(const EndsSoonAfterInterrupt&) = delete;
};

}  // namespace lockstep
