#include <sys/inotify.h>
#include <unistd.h>

#include "base/platform/file_watch.h"

namespace lockstep {

FileWatch::FileWatch(const std::filesystem::path& file) : events_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  if (events_ < 0 || ::inotify_add_watch(events_, file.c_str(), IN_MODIFY) >= 0) return;
  ::close(events_);
  events_ = -1;
}

FileWatch::~FileWatch() {
  if (events_ >= 0) ::close(events_);
  if (file_ >= 0) ::close(file_);
}

void FileWatch::forget_events() {
  char buffer[4096];
  if (events_ >= 0)
    while (::read(events_, buffer, sizeof buffer) > 0) {  // what it says is seen in the file
    }
}

}  // namespace lockstep
