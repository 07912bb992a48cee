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
  if (idle_.empty()) return;  // whoever comes free takes it
  idle_.back()->notify_one();
  idle_.pop_back();
}

void ServingThreads::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (std::condition_variable* idle : idle_) idle->notify_one();
    idle_.clear();
  }
  taken_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void ServingThreads::work() {
  std::condition_variable woken;
  while (true) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      ++load_.free;
      while (jobs_.empty() && !stopping_) {
        idle_.push_back(&woken);
        woken.wait(lock);
        std::erase(idle_, &woken);  // where nobody chose it
      }
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
