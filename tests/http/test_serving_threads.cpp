#include "http/serving_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

namespace lockstep {
namespace {

constexpr int kThreads = 4;

void wait_until_all_are_free(const Load& load) {
  while (load.free < kThreads) std::this_thread::yield();
}

std::thread::id server_of_next_job(ServingThreads& threads) {
  const auto served = std::make_shared<std::promise<std::thread::id>>();  // the thread may still be about to leave it
  threads.enqueue([served] { served->set_value(std::this_thread::get_id()); });
  return served->get_future().get();
}

TEST(ServingThreads, TheOneThatCameFreeLastServesNext) {
  Load load;
  ServingThreads threads(kThreads, load);
  wait_until_all_are_free(load);
  const std::thread::id first = server_of_next_job(threads);
  for (int i = 0; i < 20; ++i) {
    wait_until_all_are_free(load);
    EXPECT_EQ(server_of_next_job(threads), first);
  }
}

TEST(ServingThreads, EachJobIsServedOnceHoweverManyCome) {
  constexpr int kJobs = 5000;
  std::atomic<int> served{0};
  Load load;
  {
    ServingThreads threads(kThreads, load);
    for (int i = 0; i < kJobs; ++i) threads.enqueue([&] { ++served; });
  }
  EXPECT_EQ(served, kJobs);
}

TEST(ServingThreads, AllServeAtOnce) {
  std::promise<void> all_here, let_go;  // before the threads, which may still look at them when the test is done
  const std::shared_future<void> gone = let_go.get_future().share();
  std::atomic<int> here{0};
  Load load;
  ServingThreads threads(kThreads, load);
  for (int i = 0; i < kThreads; ++i)
    threads.enqueue([&] {
      if (++here == kThreads) all_here.set_value();
      gone.wait();
    });
  EXPECT_EQ(all_here.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  let_go.set_value();
}

}  // namespace
}  // namespace lockstep
