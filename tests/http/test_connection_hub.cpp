#include "http/connection_hub.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <future>
#include <mutex>

#include "base/platform/descriptors.h"

namespace lockstep {
namespace {

struct Line {
  Line() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0); }
  ~Line() {
    if (ends[0] >= 0) ::close(ends[0]);
  }
  void hang_up() {
    ::close(ends[0]);
    ends[0] = -1;
  }
  std::string rest() {  // until the hub closes
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
    return text;
  }
  int ends[2] = {-1, -1};  // the client's, the hub's
};

TEST(ConnectionHub, SendsWhatCameBeforeAndAfterItWasAttached) {
  ConnectionHub hub(10);
  Line line;
  const auto connection = hub.make(1 << 20, false);
  connection->send("early ");
  hub.attach(connection, line.ends[1]);
  connection->send("late ");
  connection->finish("end");
  EXPECT_EQ(line.rest(), "early late end");
}

TEST(ConnectionHub, TheLastOfAnAnswerDoesNotWaitForTheHubsThread) {
  std::promise<void> held, let_go;  // before the hub: its thread asks for more until the hub is gone
  const std::shared_future<void> free = let_go.get_future().share();
  std::once_flag first;
  ConnectionHub hub(10);
  Line busy, line;
  const auto other = hub.make(1 << 20, false);
  other->fill_from([&](std::string&) {
    std::call_once(first, [&] { held.set_value(); });
    free.wait();
    return false;
  });
  const auto connection = hub.make(1 << 20, false);
  hub.attach(connection, line.ends[1]);
  hub.attach(other, busy.ends[1]);
  held.get_future().wait();
  connection->finish("at once");
  pollfd watched{line.ends[0], POLLIN, 0};
  const int readable = ::poll(&watched, 1, 5000);
  const std::string told = readable > 0 ? line.rest() : std::string();
  let_go.set_value();
  EXPECT_EQ(told, "at once");
}

TEST(ConnectionHub, AnAnswerThatDoesNotFitAtOnceArrivesWhole) {
  ConnectionHub hub(10);
  Line line;
  const auto connection = hub.make(64 << 20, false);
  hub.attach(connection, line.ends[1]);
  connection->finish(std::string(8 << 20, 'x'));
  EXPECT_EQ(line.rest().size(), size_t{8} << 20);
}

TEST(ConnectionHub, TellsOnceWhoHungUp) {
  ConnectionHub hub(10);
  Line line;
  const auto connection = hub.make(1 << 20, true);
  std::promise<void> told;
  connection->when_gone([&told] { told.set_value(); });  // a second time would throw
  hub.attach(connection, line.ends[1]);
  line.hang_up();
  told.get_future().get();
  EXPECT_TRUE(connection->gone());
  connection->send("nobody");
  connection->finish();
}

TEST(ConnectionHub, AnAnswerThatWasGivenIsNoHangUp) {
  ConnectionHub hub(10);
  Line line;
  const auto connection = hub.make(1 << 20, false);
  std::atomic<bool> called{false};
  connection->when_gone([&called] { called = true; });
  hub.attach(connection, line.ends[1]);
  connection->finish("done");
  EXPECT_EQ(line.rest(), "done");
  hub.stop();
  EXPECT_FALSE(called);
}

TEST(ConnectionHub, ASlowReaderIsGivenUpWithinItsBytes) {
  ConnectionHub hub(10);
  Line line;
  const auto connection = hub.make(1 << 20, false);
  std::promise<void> told;
  connection->when_gone([&told] { told.set_value(); });
  hub.attach(connection, line.ends[1]);
  for (int i = 0; i < 40; ++i) connection->send(std::string(100000, 'x'));
  told.get_future().get();
  EXPECT_TRUE(connection->gone());
}

TEST(ConnectionHub, LargeAnswersArriveWhole) {
  ConnectionHub hub(10);
  Line line;
  const auto connection = hub.make(1 << 30, false);
  hub.attach(connection, line.ends[1]);
  std::string large;
  for (int i = 0; i < 500000; ++i) large += std::to_string(i) + " ";
  connection->finish(large);
  EXPECT_EQ(line.rest(), large);
}

TEST(ConnectionHub, ASourceIsAskedAsOftenAsTheReaderTakes) {
  ConnectionHub hub(10);
  Line line;
  const auto connection = hub.make(100, false);  // what the source gives is not bounded by it
  std::atomic<int> ready{0};
  int told = 0;
  std::string expected;
  connection->fill_from([&](std::string& piece) {
    if (told < ready) piece = std::to_string(told++) + std::string(5000, '.');
    return told < 500;
  });
  hub.attach(connection, line.ends[1]);
  for (int i = 0; i < 500; ++i) {
    expected += std::to_string(i) + std::string(5000, '.');
    ready = i + 1;
    connection->ask();
  }
  EXPECT_EQ(line.rest(), expected);
}

TEST(ConnectionHub, AnAnsweredClientIsReadAwayUntilItCloses) {
  ConnectionHub hub(10);
  Line line;
  ASSERT_EQ(::send(line.ends[1], "answer", 6, 0), 6);
  hub.linger(line.ends[1]);
  EXPECT_EQ(line.rest(), "answer");
  EXPECT_EQ(hub.connections(), 1u);
  const std::string more(300000, 'x');  // more than the line holds: somebody reads it
  EXPECT_EQ(send_without_signal(line.ends[0], more.data(), more.size()), static_cast<ssize_t>(more.size()));
  line.hang_up();
  while (hub.connections() > 0) std::this_thread::yield();
}

TEST(ConnectionHub, HoldsSoManyAndNoMore) {
  ConnectionHub hub(2);
  auto one = hub.make(100, false), two = hub.make(100, false);
  EXPECT_EQ(hub.make(100, false), nullptr);
  two.reset();
  EXPECT_NE(hub.make(100, false), nullptr);
}

TEST(ConnectionHub, StoppingHangsUpOnEverybody) {
  ConnectionHub hub(10);
  Line line;
  const auto connection = hub.make(100, false);
  hub.attach(connection, line.ends[1]);
  hub.stop();
  EXPECT_EQ(line.rest(), "");
}

}  // namespace
}  // namespace lockstep
