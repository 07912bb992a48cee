// One server, called from many threads at once, some of which hang up: for ThreadSanitizer as much as for what is
// asserted.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/new_folder.h"
#include "http/http_client.h"
#include "rest/rest_server.h"

namespace lockstep {
namespace {

constexpr size_t kClients = 32;

// Everything that reads and can be asked without arguments.
std::vector<std::string> plain_questions() {
  std::vector<std::string> paths;
  for (const Operation& operation : operations())
    if (operation.reads && std::none_of(operation.arguments.begin(), operation.arguments.end(),
                                        [](const Argument& argument) { return argument.required; }))
      paths.push_back("/v1/" + joined_name(operation, '/'));
  return paths;
}

TEST(RestServerThreads, ManyCallHangUpAndOneStopsIt) {
  const TemporaryFolder folder("lockstep-rest-", "test");
  const fs::path& home = folder.path();
  {
    Service service(home);
    RestServer server(service, {.token = "secret", .idle_secs = 600});
    const HttpTarget target{.port = server.bind(), .token = "secret"};
    std::thread serving([&] { server.run(); });
    const std::vector<std::string> paths = plain_questions();
    ASSERT_FALSE(paths.empty());
    std::atomic<int> answered = 0;
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kClients; ++t)
      threads.emplace_back([&, t] {
        for (size_t q = 0; q < paths.size(); ++q) {
          // What is asked may not be there (no session): an answer is all that counts. Every third caller gives up.
          const auto gives_up = t % 3 == 2 ? [] { return true; } : std::function<bool()>();
          const HttpAnswer answer = http_call(target, "GET", paths[(q + t) % paths.size()], {}, gives_up);
          answered += answer.status != 0 && answer.status != 500;
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_GE(answered, static_cast<int>((kClients - kClients / 3) * paths.size()));
    server.stop();
    serving.join();
    EXPECT_TRUE(server.stopping());
  }
}

}  // namespace
}  // namespace lockstep
