#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <thread>
#include <vector>

#include "base/broken_pipe.h"
#include "base/error.h"
#include "base/message.h"
#include "base/shown_json.h"
#include "base/thread.h"
#include "mcp/mcp_server.h"

namespace lockstep {
namespace {

constexpr size_t kMostRequestBytes = 4 << 20;
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
    if (line.size() < kMostRequestBytes)
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
    threads_.reserve(threads_.size() + 1);  // a thread that runs must find its place
    threads_.push_back({start_thread("mcp",
                                     [job = std::move(job), done] {
                                       try {
                                         job();
                                       } catch (const std::exception&) {  // no memory for the answer
                                       }
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
  std::atomic<bool> unwritable = false;
  const McpServer::Send send = [&](const Json& message) {
    const std::string text = shown_json(message) + "\n";
    const std::lock_guard lock(writing);
    // A full disk behind stdout; a client that has hung up is another matter, and no failure of ours.
    if (!write_fully(STDOUT_FILENO, text) && errno != EPIPE && !stdout_hung_up()) unwritable = true;
  };
  // Requests from a file or a pipe that has ended are answered all the same; a client that is gone has cancelled.
  std::atomic<bool> ended = false;
  const McpServer::Gone gone = [&] { return ended && stdout_hung_up(); };
  std::optional<Workers> workers(std::in_place);
  for (std::string line; !unwritable && read_line(line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::optional<Json> read = json_message(line);
    if (!read) {
      send(McpServer::parse_error("this is no JSON, or nested too deeply"));
      continue;
    }
    Json message = std::move(*read);
    const bool tool = McpServer::is_request(message) && message["method"] == "tools/call";
    // A tool may take long: its cancellation must be read meanwhile.
    if (tool && workers->busy() >= kMostThreads) {
      send(McpServer::busy(message["id"]));  // never on this thread: cancellations would wait behind it
    } else if (tool) {
      const Json id = message["id"];
      try {
        workers->run([&, message = std::move(message)] {
          try {
            if (const Json reply = server.answer("", message, send, gone); !reply.is_null()) send(reply);
          } catch (const std::bad_alloc&) {
            send(McpServer::failed_call(message["id"], "[memory] the system has no more memory to give"));
          }
        });
      } catch (const Error& error) {  // the system starts no more threads
        send(McpServer::failed_call(id, error.what()));
      }
    } else if (const Json reply = server.answer("", message, send); !reply.is_null()) {
      send(reply);
    }
  }
  ended = true;
  workers.reset();  // once every call has been answered
  if (unwritable) fail(Code::kIo, "mcp", "stdout cannot be written");
  return 0;
}

}  // namespace lockstep
