// One session used from many threads at once, as a service does: for ThreadSanitizer as much as for what is asserted.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/new_folder.h"
#include "debugger/session.h"

namespace lockstep {
namespace {

// In the place of Python: a program that calls us, prints a line now and then, and answers whatever it is asked.
constexpr const char* kProgram = R"(#!/usr/bin/env python3
import json, os, socket
line = socket.socket(socket.AF_UNIX)
line.connect(os.environ["LOCKSTEP_AGENT_SOCKET"])
def say(**words): line.sendall(json.dumps(words).encode() + b"\n")
say(event="hello", token=os.environ["LOCKSTEP_AGENT_TOKEN"])
for number, text in enumerate(line.makefile()):
    asked = json.loads(text)
    print("asked", asked["op"], flush=True)
    if number % 5 == 0: say(event="stopped", thread={"id": number})
    say(id=asked["id"], ok=True, result=asked["args"])
)";

class SessionThreads : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(folder_ / "program") << kProgram;
    fs::permissions(folder_ / "program", fs::perms::owner_all);
  }

  SessionRequest request() const {
    SessionRequest request;
    request.home = request.cwd = folder_;
    request.script = "none.py";
    request.python = (folder_ / "program").string();
    request.environment = current_environment();
    return request;
  }

  const TemporaryFolder made_{"lockstep-session-", "test"};
  const fs::path& folder_ = made_.path();
};

TEST_F(SessionThreads, ManyAskAtOnceAndEachGetsItsOwnAnswer) {
  constexpr int kThreads = 4, kQuestions = 25;
  Session session({"s1", "one", folder_}, request());
  ASSERT_TRUE(session.wait_for_connection(30, {}));
  std::atomic<int> right = 0, running = kThreads;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int q = 0; q < kQuestions; ++q) {
        const Json question{{"number", t * kQuestions + q}};
        right += session.ask("echo", question, 30) == question;
      }
      --running;
    });
  threads.emplace_back([&] {
    for (int64_t seen = 0; running > 0;) {
      const Session::Events events = session.events(seen);
      for (const Json& event : events.fresh) seen = event["number"].get<int64_t>();
    }
  });
  threads.emplace_back([&] {
    while (running > 0) session.status();
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kThreads * kQuestions);
  EXPECT_EQ(session.stops(), kThreads * kQuestions / 5);
  EXPECT_TRUE(session.wait_for_output(kThreads * kQuestions, 30, {}));
}

TEST_F(SessionThreads, ManyEndItAtOnce) {
  Session session({"s1", "one", folder_}, request());
  ASSERT_TRUE(session.wait_for_connection(30, {}));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back([&, t] { session.terminate(t % 2 == 0); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(session.state(), "ended");
}

// The number of a process that has been waited for may be a stranger's at once: whoever signals must know.
TEST_F(SessionThreads, AChildIsSignalledWhileAnotherThreadWaitsForIt) {
  ChildProcess child({.argv = {"sleep", "600"},
                      .environment = current_environment(),
                      .cwd = folder_,
                      .output = folder_ / "output.log",
                      .input = {},
                      .descriptors = {}});
  std::atomic<bool> ended = false;
  std::thread waits([&] {
    pollfd watched{child.end_descriptor(), POLLIN, 0};
    ::poll(&watched, 1, 30000);
    ChildEnd end;
    EXPECT_TRUE(child.try_wait(end));
    EXPECT_EQ(end.signal(), SIGKILL);
    ended = true;
  });
  while (!ended) child.signal(SIGKILL, false);
  waits.join();
}

}  // namespace
}  // namespace lockstep
