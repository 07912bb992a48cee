// Who writes a run: a record lock on <run>/lock that the system releases when its process ends, however it ends.
#pragma once
#include "base/file.h"

namespace lockstep {

// A run may have two keepers at once: the process that writes it, and `lockstep record`, which watches that process.
enum class Keeper { kWriter, kWatcher };

class RunLock {
 public:
  explicit RunLock(Keeper keeper = Keeper::kWriter) : keeper_(keeper) {}
  ~RunLock() { release(); }
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  bool acquire(const fs::path& run);  // false: another writer has it, or the folder cannot be written
  void release() noexcept;
  void forget() noexcept;  // in the child of a fork the lock is the parent's

 private:
  Keeper keeper_;
  int fd_ = -1;
  fs::path run_;
};

bool run_is_live(const fs::path& run);

}  // namespace lockstep
