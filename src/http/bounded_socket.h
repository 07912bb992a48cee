// One connection, read and written within bounds: so many bytes of head and of body, so long for a request to arrive,
// and an answer in one write, head and body together.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "http/http_server.h"

namespace lockstep {

int milliseconds_until(std::chrono::steady_clock::time_point when);

class BoundedSocket {
 public:
  BoundedSocket(int fd, const HttpLimits& limits) : fd_(fd), limits_(limits) {}

  enum class Head { kWhole, kTooLong, kGone };  // gone: hung up, or too slow
  // Takes the next request's head off the line, whole, before anybody looks at it. `hurry`: others wait for this
  // thread, and a client that dawdles loses its place.
  Head read_head(const std::function<bool()>& hurry);
  std::string_view head() const { return std::string_view(received_).substr(0, head_bytes_); }
  bool has_more() const { return at_ < received_.size(); }  // the client did not wait for its answer

  bool is_readable() const;
  bool is_writable() const;
  ssize_t read(char* to, size_t size);  // the head again, then the body
  ssize_t write(std::string_view bytes, bool at_once);
  bool flush() const;
  int fd() const { return fd_; }
  // This request may bring so many bytes of body, and take so long.
  void allow(uint64_t body_bytes, double secs);

 private:
  bool ready(short events, int milliseconds) const;
  int write_ms() const { return static_cast<int>(limits_.write_secs * 1000); }
  ssize_t receive(size_t most);

  int fd_;
  const HttpLimits& limits_;
  std::string received_;   // what was taken off the line
  size_t at_ = 0;          // of it, what was handed on
  size_t head_bytes_ = 0;  // of it, the head
  size_t budget_ = 0;      // what may still be taken
  std::chrono::steady_clock::time_point deadline_;
  mutable std::string pending_;  // what the client has not been sent yet
};

}  // namespace lockstep
