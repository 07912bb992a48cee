#include <fcntl.h>
#include <sys/event.h>
#include <unistd.h>

#include <array>

#include "base/platform/ready_sockets.h"

namespace lockstep {
namespace {

constexpr uintptr_t kWakeUp = 0;  // of an event of our own, which has no descriptor

}  // namespace

ReadySockets::~ReadySockets() {
  if (events_ >= 0) ::close(events_);
}

bool ReadySockets::open() {
  events_ = ::kqueue();
  if (events_ < 0) return false;
  ::fcntl(events_, F_SETFD, FD_CLOEXEC);
  struct kevent change;
  EV_SET(&change, kWakeUp, EVFILT_USER, EV_ADD | EV_CLEAR, 0, 0, nullptr);
  return ::kevent(events_, &change, 1, nullptr, 0, nullptr) == 0;
}

void ReadySockets::add(int fd) {
  struct kevent change;
  EV_SET(&change, static_cast<uintptr_t>(fd), EVFILT_READ, EV_ADD | EV_CLEAR, 0, 0, nullptr);
  ::kevent(events_, &change, 1, nullptr, 0, nullptr);
}

void ReadySockets::expect_room(int fd) {
  struct kevent change;
  EV_SET(&change, static_cast<uintptr_t>(fd), EVFILT_WRITE, EV_ADD | EV_CLEAR, 0, 0, nullptr);
  ::kevent(events_, &change, 1, nullptr, 0, nullptr);
}

void ReadySockets::remove(int fd) {
  struct kevent changes[2];
  EV_SET(&changes[0], static_cast<uintptr_t>(fd), EVFILT_READ, EV_DELETE, 0, 0, nullptr);
  EV_SET(&changes[1], static_cast<uintptr_t>(fd), EVFILT_WRITE, EV_DELETE, 0, 0, nullptr);
  ::kevent(events_, &changes[0], 1, nullptr, 0, nullptr);
  ::kevent(events_, &changes[1], 1, nullptr, 0, nullptr);
}

void ReadySockets::wake() {
  struct kevent change;
  EV_SET(&change, kWakeUp, EVFILT_USER, 0, NOTE_TRIGGER, 0, nullptr);
  ::kevent(events_, &change, 1, nullptr, 0, nullptr);
}

std::vector<ReadySockets::Ready> ReadySockets::wait(std::chrono::milliseconds most) {
  const auto secs = std::chrono::duration_cast<std::chrono::seconds>(most);
  const timespec until{static_cast<time_t>(secs.count()),
                       static_cast<long>(std::chrono::nanoseconds(most - secs).count())};
  std::array<struct kevent, 256> events;
  const int n = ::kevent(events_, nullptr, 0, events.data(), static_cast<int>(events.size()), &until);
  std::vector<Ready> ready;
  for (int i = 0; i < n; ++i) {
    const struct kevent& event = events[static_cast<size_t>(i)];
    if (event.filter == EVFILT_USER) continue;
    ready.push_back({static_cast<int>(event.ident), (event.flags & (EV_EOF | EV_ERROR)) != 0});
  }
  return ready;
}

}  // namespace lockstep
