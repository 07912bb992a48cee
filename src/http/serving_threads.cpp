#include "http/serving_threads.h"

#include "base/thread.h"

namespace lockstep {

ServingThreads::ServingThreads(int threads, Load& load) : most_jobs_(static_cast<size_t>(threads)), load_(load) {
  threads_.reserve(most_jobs_);
  try {
    for (int i = 0; i < threads; ++i) threads_.push_back(start_thread("serve", [this] { work(); }));
  } catch (...) {
    shutdown();  // those that have started wait for work that will never come
    throw;
  }
}

void ServingThreads::enqueue(std::function<void()> job) {
  std::unique_lock lock(mutex_);
  taken_.wait(lock, [&] { return jobs_.size() < most_jobs_ || stopping_; });
  jobs_.push_back(std::move(job));
  ++load_.waiting;
  added_.notify_one();
}

void ServingThreads::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  added_.notify_all();
  taken_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void ServingThreads::work() {
  while (true) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      ++load_.free;
      added_.wait(lock, [&] { return !jobs_.empty() || stopping_; });
      --load_.free;
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      --load_.waiting;
    }
    taken_.notify_one();
    job();
  }
}

}  // namespace lockstep
