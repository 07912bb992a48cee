#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>

#include "base/platform/ready_sockets.h"

namespace lockstep {

ReadySockets::~ReadySockets() {
  if (events_ >= 0) ::close(events_);
  if (wakeup_ >= 0) ::close(wakeup_);
}

bool ReadySockets::open() {
  events_ = ::epoll_create1(EPOLL_CLOEXEC);
  wakeup_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (events_ < 0 || wakeup_ < 0) return false;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wakeup_;
  return ::epoll_ctl(events_, EPOLL_CTL_ADD, wakeup_, &event) == 0;
}

void ReadySockets::add(int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  event.data.fd = fd;
  ::epoll_ctl(events_, EPOLL_CTL_ADD, fd, &event);
}

void ReadySockets::expect_room(int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLOUT | EPOLLET;
  event.data.fd = fd;
  ::epoll_ctl(events_, EPOLL_CTL_MOD, fd, &event);
}

void ReadySockets::remove(int fd) {
  ::epoll_ctl(events_, EPOLL_CTL_DEL, fd, nullptr);
}

void ReadySockets::wake() {
  const uint64_t one = 1;
  if (::write(wakeup_, &one, sizeof one) < 0) return;  // it is awake already
}

std::vector<ReadySockets::Ready> ReadySockets::wait(std::chrono::milliseconds most) {
  std::array<epoll_event, 256> events;
  const int n = ::epoll_wait(events_, events.data(), static_cast<int>(events.size()), static_cast<int>(most.count()));
  std::vector<Ready> ready;
  for (int i = 0; i < n; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    uint64_t count = 0;
    if (event.data.fd != wakeup_)
      ready.push_back({event.data.fd, (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0});
    else if (::read(wakeup_, &count, sizeof count) < 0)
      continue;
  }
  return ready;
}

}  // namespace lockstep
