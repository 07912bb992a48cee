#include <fcntl.h>
#include <sys/event.h>
#include <unistd.h>

#include "base/platform/file_watch.h"

namespace lockstep {

FileWatch::FileWatch(const std::filesystem::path& file)
    : events_(::kqueue()), file_(::open(file.c_str(), O_EVTONLY | O_CLOEXEC)) {
  struct kevent change;
  EV_SET(&change, static_cast<uintptr_t>(file_), EVFILT_VNODE, EV_ADD | EV_CLEAR, NOTE_WRITE | NOTE_EXTEND, 0, nullptr);
  if (events_ >= 0) ::fcntl(events_, F_SETFD, FD_CLOEXEC);
  if (events_ < 0 || (file_ >= 0 && ::kevent(events_, &change, 1, nullptr, 0, nullptr) == 0)) return;
  ::close(events_);
  events_ = -1;
}

FileWatch::~FileWatch() {
  if (events_ >= 0) ::close(events_);
  if (file_ >= 0) ::close(file_);
}

void FileWatch::forget_events() {
  struct kevent event;
  const timespec at_once{};
  if (events_ >= 0)
    while (::kevent(events_, nullptr, 0, &event, 1, &at_once) > 0) {  // what it says is seen in the file
    }
}

}  // namespace lockstep
