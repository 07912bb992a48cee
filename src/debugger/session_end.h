// How a session's program ended, from everything that is known: what it said, what the system says, what it left.
#pragma once
#include "base/json.h"
#include "debugger/child_process.h"

namespace lockstep {

struct EndEvidence {
  ChildEnd end;
  Json exited;              // the event, where it came
  fs::path folder;          // crash.txt and last.json may be there
  Json last_stop;           // the last place where it stood
  bool terminated = false;  // we ended it
  int64_t memory_kills_before = -1, memory_kills_after = -1;
  bool connected = true;  // it has called us at all
};

// {how, exit_code, description, signal?, exception?, location?, location_is?, stack?, crash?, peak_memory_bytes}. how:
// finished, sys_exit, exception, signal, killed, out_of_memory, terminated, exit (os._exit or a C library's exit),
// unseen (no service was there, and it left no word).
Json describe_end(const EndEvidence& evidence);

}  // namespace lockstep
