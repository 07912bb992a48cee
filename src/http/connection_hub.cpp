#include "http/connection_hub.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/platform/descriptors.h"
#include "base/platform/spawn.h"
#include "base/thread.h"

namespace lockstep {
namespace {

using HubClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kBeat{15};     // between comments on a quiet stream
constexpr std::chrono::seconds kStalled{30};  // a reader that takes nothing for so long is given up
constexpr std::chrono::milliseconds kLingers{200};

constexpr int kTurns = 16;

enum class Rest { kNone, kMore, kEnd };

// What a client still sends: nothing of it is a request any more. One that never stops sending has its turn and no
// more.
Rest read_away(int fd) {
  char rest[4096];
  for (int turn = 0; turn < kTurns; ++turn) {
    const ssize_t n = ::recv(fd, rest, sizeof rest, MSG_DONTWAIT);
    if (n == 0) return Rest::kEnd;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? Rest::kNone : Rest::kEnd;
  }
  return Rest::kMore;
}

// Bytes that the system took without waiting.
size_t send_what_fits(int fd, std::string_view bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = send_without_signal(fd, bytes.data() + sent, bytes.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  return sent;
}

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
    if (pending_.size() + unsent_ + bytes.size() > most_bytes_)
      overrun_ = true;  // whoever reads so slowly has lost the thread
    else
      pending_ += bytes;
  }
  hub_.touch(*this);
}

// Where nothing waits before it, the last of it goes out at once: the client has its answer before the hub's thread has
// its turn, which on a machine that computes may be milliseconds later.
void WaitingConnection::finish(const std::string& bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || finished_) return;
    finished_ = true;
    size_t sent = 0;
    if (fd_ >= 0 && pending_.empty() && unsent_ == 0 && !overrun_) {
      sent = send_what_fits(fd_, bytes);
      if (sent == bytes.size()) ::shutdown(fd_, SHUT_WR);
    }
    pending_.append(bytes, sent);
  }
  hub_.touch(*this);
}

void WaitingConnection::ask() {
  hub_.touch(*this);
}

ConnectionHub::ConnectionHub(size_t most_connections) : most_(most_connections) {
  if (!sockets_.open()) fail(Code::kIo, "serve", "the system gives no descriptors for waiting connections");
  thread_ = start_thread("serve", [this] { run(); });
}

ConnectionHub::~ConnectionHub() {
  stop();
  if (thread_.joinable()) thread_.join();
  attached_.clear();
}

void ConnectionHub::stop() {
  stopping_ = true;
  sockets_.wake();
}

void ConnectionHub::touch(WaitingConnection& connection) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = touched_.empty();  // else it is being woken already
    touched_.push_back(connection.weak_from_this());
  }
  if (first) sockets_.wake();
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
  bool has_work = false;
  {
    const std::lock_guard own(connection->mutex_);
    connection->fd_ = fd;
    connection->attached_ = connection->progressed_ = connection->beaten_ = HubClock::now();
    has_work = !connection->pending_.empty() || connection->finished_ || connection->overrun_ || connection->source_;
  }
  attached_[fd] = connection;
  sockets_.add(fd);
  if (!has_work) return;  // nobody is woken for one that only waits
  touched_.push_back(connection);
  sockets_.wake();
}

void ConnectionHub::linger(int fd) {
  ::shutdown(fd, SHUT_WR);
  const bool client_closed = read_away(fd) == Rest::kEnd;
  const auto connection = client_closed ? nullptr : make(0, false);
  if (!connection) {
    ::close(fd);
    return;
  }
  connection->lingers_ = true;
  attach(connection, fd);
}

void ConnectionHub::close(const std::shared_ptr<WaitingConnection>& connection, bool left) {
  std::function<void()> call;
  std::function<bool(std::string&)> source;  // what it holds goes without a lock
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
    source = std::move(connection->source_);
    connection->pending_ = {};
    connection->outgoing_ = {};
    sockets_.remove(connection->fd_);
    ::shutdown(connection->fd_, SHUT_RDWR);
    ::close(connection->fd_);
    connection->fd_ = -1;
  }
  if (call) call();  // without a lock: it may come back to us
}

// Writes without the lock: whoever hands something in meanwhile does not wait for the system.
ConnectionHub::Sent ConnectionHub::send_pending(WaitingConnection& connection) {
  std::string& outgoing = connection.outgoing_;
  while (true) {
    while (connection.sent_ < outgoing.size()) {
      const ssize_t n =
          send_without_signal(connection.fd_, outgoing.data() + connection.sent_, outgoing.size() - connection.sent_);
      if (n > 0) {
        connection.sent_ += static_cast<size_t>(n);
        connection.progressed_ = connection.beaten_ = HubClock::now();
      } else if (n == 0 || errno != EINTR) {
        const bool full = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        const std::lock_guard lock(connection.mutex_);
        connection.unsent_ = outgoing.size() - connection.sent_;
        if (full) sockets_.expect_room(connection.fd_);
        return full && !connection.overrun_ ? Sent::kPart : Sent::kLost;
      }
    }
    outgoing = {};
    connection.sent_ = 0;
    const std::lock_guard lock(connection.mutex_);
    connection.unsent_ = 0;
    if (connection.overrun_) return Sent::kLost;
    if (connection.pending_.empty()) return connection.finished_ ? Sent::kLast : Sent::kAll;
    outgoing.swap(connection.pending_);
    connection.unsent_ = outgoing.size();
  }
}

void ConnectionHub::serve(const std::shared_ptr<WaitingConnection>& connection, bool hung_up) {
  if (connection->gone_ || connection->fd_ < 0) return;
  Sent sent = send_pending(*connection);
  for (int turn = 0; connection->source_ && sent == Sent::kAll; ++turn) {
    if (turn == kTurns) {  // others have theirs first
      touch(*connection);
      break;
    }
    std::string piece;
    const bool more = connection->source_(piece);
    if (more && piece.empty()) break;
    {
      const std::lock_guard lock(connection->mutex_);
      connection->pending_ += piece;
      connection->finished_ = !more;
    }
    sent = send_pending(*connection);
  }
  const Rest rest = read_away(connection->fd_);
  const bool whole = sent == Sent::kLast;
  if (whole || sent == Sent::kLost || hung_up || rest == Rest::kEnd) return close(connection, !whole);
  if (rest == Rest::kMore) touch(*connection);
}

void ConnectionHub::run() {
  let_others_go_first();  // the thread that draws and has just handed something in, above all
  auto beat = HubClock::now();
  while (!stopping_) {
    const std::vector<ReadySockets::Ready> changed = sockets_.wait(std::chrono::seconds(1));
    std::vector<std::pair<std::shared_ptr<WaitingConnection>, bool>> ready;
    {
      const std::lock_guard lock(mutex_);
      for (const ReadySockets::Ready& one : changed)
        if (const auto found = attached_.find(one.fd); found != attached_.end())
          ready.emplace_back(found->second, one.hung_up);
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
        const bool idle = connection->unsent_ == 0 && connection->pending_.empty();
        stalled = !idle && now - connection->progressed_ > kStalled;
        beats = connection->beats_ && idle && now - connection->beaten_ > kBeat;
        if (beats) connection->pending_ = ": \n\n";
        if (idle) connection->progressed_ = now;
      }
      const bool lingered = connection->lingers_ && now - connection->attached_ > kLingers;
      if (stalled || lingered)
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
