#include <fcntl.h>
#include <signal.h>
#include <sys/event.h>
#include <unistd.h>

#include <cerrno>

#include "base/platform/process_end.h"

namespace lockstep {

int process_end_descriptor(pid_t pid) {
  if (::kill(pid, 0) != 0 && errno != EPERM) return -1;
  const int queue = ::kqueue();
  if (queue < 0) return -1;
  ::fcntl(queue, F_SETFD, FD_CLOEXEC);
  struct kevent change;
  EV_SET(&change, static_cast<uintptr_t>(pid), EVFILT_PROC, EV_ADD, NOTE_EXIT, 0, nullptr);
  if (::kevent(queue, &change, 1, nullptr, 0, nullptr) == 0) return queue;
  // It has ended and nobody has waited for it yet: an event of our own that has happened already.
  EV_SET(&change, 0, EVFILT_USER, EV_ADD, 0, 0, nullptr);
  const bool added = ::kevent(queue, &change, 1, nullptr, 0, nullptr) == 0;
  EV_SET(&change, 0, EVFILT_USER, 0, NOTE_TRIGGER, 0, nullptr);
  if (added && ::kevent(queue, &change, 1, nullptr, 0, nullptr) == 0) return queue;
  ::close(queue);
  return -1;
}

}  // namespace lockstep
