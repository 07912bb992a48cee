// How a record's line gets into the run's log.
#include "base/text.h"
#include "capture/run_writer.h"

namespace lockstep {

// With mutex_ held.
void RunWriter::write_line(const Record& record) {
  std::string failure;
  const bool written = append_line(record, failure);
  count_line(written, failure);
}

// Without mutex_: a write takes longer than all that the program's threads wait for there.
bool RunWriter::append_line(const Record& record, std::string& failure) {
  const std::lock_guard lock(log_mutex_);
  if (log_broken_) return false;
  try {
    folder_.append(record);
    return true;
  } catch (const std::exception& error) {
    log_broken_ = true;
    failure = error.what();
    return false;
  }
}

// With mutex_ held.
void RunWriter::count_line(bool written, const std::string& failure) {
  counts_.records += written;
  if (failure.empty()) return;
  ++counts_.lost;
  // warn_once takes the lock that is held here.
  if (!warned_.insert(kDiskTopic).second) return;
  const std::string message = failure + "; recording stops here, the program goes on";
  if (options_.warn)
    options_.warn(message);
  else
    print_error("lockstep: {}\n", message);
}

}  // namespace lockstep
