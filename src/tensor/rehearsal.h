// A rehearsal makes every allocation of a computation and leaves its arithmetic out: what the computation will need is
// known before a weight is read. Bytes allocated meanwhile are never touched, so the system lends them in name only.
#pragma once
#include <cstdint>

namespace lockstep {

// While one lives, this thread rehearses, and no memory limit holds. Other threads must not allocate tensors.
class Rehearsal {
 public:
  Rehearsal();
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  uint64_t peak_bytes() const;  // in use at most since the rehearsal began, what was in use before it included

 private:
  uint64_t limit_;
};

// Asked by whatever fills large tensors: on a rehearsing thread they stay unwritten.
bool rehearsing();

}  // namespace lockstep
