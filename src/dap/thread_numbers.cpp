#include "dap/thread_numbers.h"

#include "base/error.h"

namespace lockstep {

int64_t ThreadNumbers::number_of(int64_t thread) {
  if (thread == 0) return 0;
  const std::lock_guard lock(mutex_);
  const auto [found, fresh] = numbers_.try_emplace(thread, next_);
  if (fresh) threads_[next_++] = thread;
  return found->second;
}

int64_t ThreadNumbers::thread_of(int64_t number) const {
  if (number == 0) return 0;
  const std::lock_guard lock(mutex_);
  const auto found = threads_.find(number);
  if (found == threads_.end())
    fail(Code::kNotFound, "dap", "there is no thread " + std::to_string(number), {.hint = "threads"});
  return found->second;
}

void ThreadNumbers::forget(int64_t thread) {
  const std::lock_guard lock(mutex_);
  const auto found = numbers_.find(thread);
  if (found == numbers_.end()) return;
  threads_.erase(found->second);
  numbers_.erase(found);
}

void ThreadNumbers::forget_all() {
  const std::lock_guard lock(mutex_);
  next_ = 1;
  numbers_.clear();
  threads_.clear();
}

}  // namespace lockstep
