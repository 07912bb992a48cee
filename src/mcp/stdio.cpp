#include <poll.h>

#include <cstdio>
#include <thread>
#include <vector>

#include "mcp/mcp_server.h"

namespace lockstep {
namespace {

constexpr size_t kMostMessageBytes = 4 << 20;
constexpr size_t kMostThreads = 16;

// False: stdin has ended. A line that is too long is read away and comes back empty.
bool read_line(std::string& line) {
  line.clear();
  bool too_long = false;
  for (int c; (c = std::getchar()) != EOF;) {
    if (c == '\n') {
      if (too_long) line.clear();
      return true;
    }
    if (line.size() < kMostMessageBytes)
      line += static_cast<char>(c);
    else
      too_long = true;
  }
  return !line.empty();
}

class Workers {
 public:
  void run(std::function<void()> job) {
    std::erase_if(threads_, [](Worker& worker) {
      if (!*worker.done) return false;
      worker.thread.join();
      return true;
    });
    auto done = std::make_shared<std::atomic<bool>>(false);
    threads_.push_back({std::thread([job = std::move(job), done] {
                          job();
                          *done = true;
                        }),
                        done});
  }
  size_t busy() const {
    size_t n = 0;
    for (const Worker& worker : threads_) n += !*worker.done;
    return n;
  }
  ~Workers() {
    for (Worker& worker : threads_) worker.thread.join();
  }

 private:
  struct Worker {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> done;
  };
  std::vector<Worker> threads_;
};

// Whether nobody reads what we write: the client has ended, or hung up.
bool stdout_hung_up() {
  pollfd out{1, 0, 0};
  return poll(&out, 1, 0) > 0 && (out.revents & (POLLERR | POLLHUP | POLLNVAL));
}

}  // namespace

int serve_mcp_stdio(McpServer& server) {
  std::mutex writing;
  const McpServer::Send send = [&](const Json& message) {
    const std::string text = message.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    const std::lock_guard lock(writing);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  // Requests from a file or a pipe that has ended are answered all the same; a client that is gone has cancelled.
  std::atomic<bool> ended = false;
  const McpServer::Gone gone = [&] { return ended && stdout_hung_up(); };
  Workers workers;
  for (std::string line; read_line(line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Json message = Json::parse(line, nullptr, false);
    if (message.is_discarded()) {
      send(McpServer::parse_error("this is no JSON"));
      continue;
    }
    const bool tool = McpServer::is_request(message) && message["method"] == "tools/call";
    // A tool may take long: its cancellation must be read meanwhile.
    if (tool && workers.busy() >= kMostThreads) {
      send(McpServer::busy(message["id"]));  // never on this thread: cancellations would wait behind it
    } else if (tool) {
      workers.run([&, message = std::move(message)] {
        if (const Json reply = server.answer("", message, send, gone); !reply.is_null()) send(reply);
      });
    } else if (const Json reply = server.answer("", message, send); !reply.is_null()) {
      send(reply);
    }
  }
  ended = true;
  return 0;  // once every call has been answered
}

}  // namespace lockstep
