#include "rest/connection_hub.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/error.h"
#include "base/thread.h"

namespace lockstep {
namespace {

using HubClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kBeat{15};     // between comments on a quiet stream
constexpr std::chrono::seconds kStalled{30};  // a reader that takes nothing for so long is given up

}  // namespace

WaitingConnection::~WaitingConnection() {
  if (fd_ >= 0) ::close(fd_);
  --hub_.count_;
}

void WaitingConnection::when_gone(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  when_gone_ = std::move(call);
}

void WaitingConnection::send(const std::string& bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || finished_ || overrun_) return;
    if (pending_.size() - sent_ + bytes.size() > most_bytes_)
      overrun_ = true;  // whoever reads so slowly has lost the thread
    else
      pending_ += bytes;
  }
  const std::lock_guard lock(hub_.mutex_);
  hub_.touched_.push_back(weak_from_this());
  hub_.wake();
}

void WaitingConnection::finish(const std::string& bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || finished_) return;
    pending_ += bytes;
    finished_ = true;
  }
  const std::lock_guard lock(hub_.mutex_);
  hub_.touched_.push_back(weak_from_this());
  hub_.wake();
}

ConnectionHub::ConnectionHub(size_t most_connections) : most_(most_connections) {
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  wakeup_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || wakeup_ < 0) fail(Code::kIo, "serve", "the system gives no descriptors for waiting connections");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wakeup_;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wakeup_, &event);
  thread_ = start_thread("serve", [this] { run(); });
}

ConnectionHub::~ConnectionHub() {
  stop();
  if (thread_.joinable()) thread_.join();
  attached_.clear();
  ::close(epoll_);
  ::close(wakeup_);
}

void ConnectionHub::stop() {
  stopping_ = true;
  wake();
}

void ConnectionHub::wake() {
  const uint64_t one = 1;
  if (::write(wakeup_, &one, sizeof one) < 0) return;  // it is awake already
}

std::shared_ptr<WaitingConnection> ConnectionHub::make(size_t most_bytes, bool beats) {
  if (++count_ > most_ || stopping_) {
    --count_;
    return nullptr;
  }
  return std::make_shared<WaitingConnection>(*this, most_bytes, beats);
}

void ConnectionHub::attach(const std::shared_ptr<WaitingConnection>& connection, int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  const std::lock_guard lock(mutex_);
  connection->fd_ = fd;
  connection->progressed_ = connection->beaten_ = HubClock::now();
  attached_[fd] = connection;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLOUT | EPOLLET;
  event.data.fd = fd;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  touched_.push_back(connection);
  wake();
}

void ConnectionHub::close(const std::shared_ptr<WaitingConnection>& connection, bool left) {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    attached_.erase(connection->fd_);
  }
  {
    const std::lock_guard lock(connection->mutex_);
    if (connection->gone_) return;
    connection->gone_ = true;
    if (left) call = std::move(connection->when_gone_);
    connection->when_gone_ = {};
    connection->pending_ = {};
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, connection->fd_, nullptr);
    ::shutdown(connection->fd_, SHUT_RDWR);
    ::close(connection->fd_);
    connection->fd_ = -1;
  }
  if (call) call();  // without a lock: it may come back to us
}

void ConnectionHub::serve(const std::shared_ptr<WaitingConnection>& connection, bool hung_up) {
  bool whole = false, lost = false;
  {
    const std::lock_guard lock(connection->mutex_);
    if (connection->gone_ || connection->fd_ < 0) return;
    lost = connection->overrun_;
    while (!lost && connection->sent_ < connection->pending_.size()) {
      const ssize_t n = ::send(connection->fd_, connection->pending_.data() + connection->sent_,
                               connection->pending_.size() - connection->sent_, MSG_NOSIGNAL);
      if (n > 0) {
        connection->sent_ += static_cast<size_t>(n);
        connection->progressed_ = connection->beaten_ = HubClock::now();
      } else if (n < 0 && errno == EINTR) {
        continue;
      } else {
        lost = !(n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
        break;
      }
    }
    if (connection->sent_ == connection->pending_.size()) {
      connection->pending_.clear();
      if (connection->pending_.capacity() > 4096) connection->pending_.shrink_to_fit();
      connection->sent_ = 0;
      whole = connection->finished_;
    }
  }
  // What a client still sends is read away: nothing of it is a request any more.
  char rest[4096];
  ssize_t n = 0;
  while ((n = ::recv(connection->fd_, rest, sizeof rest, MSG_DONTWAIT)) > 0) {
  }
  const bool left = hung_up || n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
  if (whole || lost || left) close(connection, !whole);
}

void ConnectionHub::run() {
  std::vector<epoll_event> events(256);
  auto beat = HubClock::now();
  while (!stopping_) {
    const int n = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 1000);
    std::vector<std::pair<std::shared_ptr<WaitingConnection>, bool>> ready;
    {
      const std::lock_guard lock(mutex_);
      for (int i = 0; i < n; ++i) {
        const epoll_event& event = events[static_cast<size_t>(i)];
        if (event.data.fd == wakeup_) {
          uint64_t count = 0;
          if (::read(wakeup_, &count, sizeof count) < 0) continue;
          continue;
        }
        const auto found = attached_.find(event.data.fd);
        if (found != attached_.end())
          ready.emplace_back(found->second, (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
      }
      for (const auto& one : touched_)
        if (auto connection = one.lock(); connection && connection->fd_ >= 0) ready.emplace_back(connection, false);
      touched_.clear();
    }
    for (const auto& [connection, hung_up] : ready) serve(connection, hung_up);
    const auto now = HubClock::now();
    if (now - beat < std::chrono::seconds(1)) continue;
    beat = now;
    std::vector<std::shared_ptr<WaitingConnection>> all;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [fd, connection] : attached_) all.push_back(connection);
    }
    for (const auto& connection : all) {
      bool stalled = false, beats = false;
      {
        const std::lock_guard lock(connection->mutex_);
        stalled = connection->sent_ < connection->pending_.size() && now - connection->progressed_ > kStalled;
        beats = connection->beats_ && connection->pending_.empty() && now - connection->beaten_ > kBeat;
        if (beats) connection->pending_ = ": \n\n";
        if (beats || connection->pending_.empty()) connection->progressed_ = now;
      }
      if (stalled)
        close(connection, true);
      else if (beats)
        serve(connection, false);
    }
  }
  std::vector<std::shared_ptr<WaitingConnection>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [fd, connection] : attached_) all.push_back(connection);
  }
  for (const auto& connection : all) close(connection, true);
}

}  // namespace lockstep
