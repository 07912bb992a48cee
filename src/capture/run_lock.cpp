#include "capture/run_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>

#include "base/error.h"

namespace lockstep {
namespace {

// Record locks belong to the process: a second open here would succeed, and closing it would drop the first. So runs
// that this very process writes are remembered beside the locks.
std::mutex mutex;
std::set<std::string>& own_runs() {
  static std::set<std::string>* runs = new std::set<std::string>;
  return *runs;
}

std::string canonical_text(const fs::path& run) {
  std::error_code error;
  const fs::path canonical = fs::weakly_canonical(run, error);
  return (error ? run : canonical).string();
}

struct flock write_lock(off_t start, off_t length) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;  // 0: to the end
  return lock;
}

}  // namespace

bool RunLock::acquire(const fs::path& run) {
  const std::lock_guard guard(mutex);
  const std::string name = canonical_text(run);
  if (own_runs().contains(name)) return false;
  const int fd = ::open((run / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return false;
  struct flock lock = write_lock(keeper_ == Keeper::kWriter ? 0 : 1, 1);
  if (::fcntl(fd, F_SETLK, &lock) != 0) {
    ::close(fd);
    return false;
  }
  fd_ = fd;
  run_ = name;
  own_runs().insert(name);
  return true;
}

void RunLock::release() noexcept {
  if (fd_ < 0) return;
  const std::lock_guard guard(mutex);
  own_runs().erase(run_.native());
  ::close(fd_);
  fd_ = -1;
}

void RunLock::forget() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool run_is_live(const fs::path& run) {
  const std::lock_guard guard(mutex);
  if (own_runs().contains(canonical_text(run))) return true;
  const int fd = ::open((run / "lock").c_str(), O_RDWR | O_CLOEXEC);
  // Without a file nobody holds it, and one that may not be written belongs to nobody here. Any other refusal says
  // nothing, and a run that is being written must not be taken for one that was left.
  if (fd < 0 && errno != ENOENT && errno != ENOTDIR && errno != EACCES && errno != EROFS)
    fail(Code::kIo, "run", (run / "lock").string() + ": " + std::strerror(errno));
  if (fd < 0) return false;
  struct flock lock = write_lock(0, 0);
  const bool held = ::fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  ::close(fd);
  return held;
}

}  // namespace lockstep
