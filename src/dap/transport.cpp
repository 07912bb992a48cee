// The adapter on stdin and stdout, and on a port of this machine.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/broken_pipe.h"
#include "base/error.h"
#include "base/platform/descriptors.h"
#include "base/text.h"
#include "base/thread.h"
#include "dap/adapter.h"
#include "dap/message.h"

namespace lockstep {
namespace {

constexpr int kLookMs = 100;  // how soon the end is noticed where nothing arrives
constexpr size_t kMostClients = 16;

// One client from its first byte to its last; `write` is false once it has gone.
void converse(const DapService& service, int in, const std::function<bool(std::string_view)>& write,
              const std::function<bool()>& interrupted) {
  std::atomic<bool> broken = false;
  DapAdapter adapter(service, [&](const std::string& bytes) {
    if (!broken && !write(bytes)) broken = true;
  });
  DapReader reader;
  std::vector<char> piece(1 << 16);
  try {
    while (!adapter.done() && !broken && !interrupted()) {
      pollfd waiting{in, POLLIN, 0};
      if (::poll(&waiting, 1, kLookMs) <= 0) continue;
      const ssize_t n = ::read(in, piece.data(), piece.size());
      if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) break;
      if (n < 0) continue;
      reader.feed({piece.data(), static_cast<size_t>(n)});
      while (auto message = reader.next()) adapter.receive(std::move(*message));
    }
  } catch (const Error& error) {  // no DAP: nothing after it can be understood
    print_error("lockstep: {}\n", error.what());
  }
  if (adapter.done()) return;
  adapter.close();
  while (!adapter.done()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

struct PortClient {
  std::thread thread;
  std::shared_ptr<std::atomic<bool>> over;
};

}  // namespace

int serve_dap_stdio(const DapService& service) {
  converse(
      service, STDIN_FILENO, [](std::string_view bytes) { return write_fully(STDOUT_FILENO, bytes); },
      [] { return false; });
  return 0;
}

int serve_dap_port(const DapService& service, int port, const std::function<void(int port)>& ready,
                   const std::function<bool()>& interrupted) {
  const int listener = make_socket(AF_INET);
  if (listener < 0) fail(Code::kIo, "dap", std::string("socket: ") + std::strerror(errno));
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener, 16) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    const int reason = errno;
    ::close(listener);
    fail(Code::kIo, "dap", "cannot listen on port " + std::to_string(port) + ": " + std::strerror(reason),
         {.hint = "--port 0 for any"});
  }
  ready(ntohs(address.sin_port));
  std::vector<PortClient> clients;
  while (!interrupted()) {
    std::erase_if(clients, [](PortClient& client) {
      if (!*client.over) return false;
      client.thread.join();
      return true;
    });
    pollfd waiting{listener, POLLIN, 0};
    if (::poll(&waiting, 1, kLookMs) <= 0) continue;
    sockaddr_in peer{};
    socklen_t peer_size = sizeof peer;
    const int fd = accept_socket(listener, reinterpret_cast<sockaddr*>(&peer), &peer_size);
    if (fd < 0) continue;
    // A port has no secret that a client of the protocol could show, and what can be asked of us runs programs.
    if (clients.size() >= kMostClients || user_of_peer(peer, address) != static_cast<int64_t>(::geteuid())) {
      ::close(fd);
      continue;
    }
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto over = std::make_shared<std::atomic<bool>>(false);
    try {
      clients.push_back({start_thread("dap",
                                      [&service, &interrupted, fd, over] {
                                        try {
                                          converse(
                                              service, fd,
                                              [fd](std::string_view bytes) { return send_fully(fd, bytes); },
                                              interrupted);
                                        } catch (const std::exception& error) {  // no memory for it
                                          print_error("lockstep: {}\n", error.what());
                                        }
                                        ::shutdown(fd, SHUT_RDWR);
                                        ::close(fd);
                                        *over = true;
                                      }),
                         over});
    } catch (const Error&) {  // no more threads: the client sees that it is not served
      ::close(fd);
    }
  }
  ::close(listener);
  for (PortClient& client : clients) client.thread.join();
  return 0;
}

}  // namespace lockstep
