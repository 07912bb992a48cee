// Work shared among OpenMP threads: the pool that oneDNN uses too. Chunks are fixed by the thread count alone, so the
// same count gives the same bits. A rehearsal does none of it.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "tensor/rehearsal.h"

namespace lockstep::cpu {

// A second thread costs some microseconds on an idle machine and a time slice on a busy one, where it waits at the
// barrier until the other is let in. Work of less than this many simple operations, some thirty microseconds, stays on
// one.
inline constexpr int64_t kWorthAThread = 1 << 17;
inline constexpr int64_t kProductsPerOperation = 16;  // multiply-adds of a matrix product that count as one

// function(begin, end) over [0, count) in contiguous chunks, a few for each thread, taken as threads come free: one
// that starts late leaves its share to the others. `cost` is the work of one item. The function must not throw.
template <typename Function>
void parallel_chunks(int threads, int64_t count, int64_t cost, Function&& function) {
  if (count <= 0 || rehearsing()) return;
  const int64_t worth = std::max<int64_t>(1, count * std::max<int64_t>(cost, 1) / kWorthAThread);
  const int64_t workers = std::min({static_cast<int64_t>(threads), count, worth});
  if (workers <= 1) {
    function(int64_t{0}, count);
    return;
  }
  constexpr int64_t kChunksEach = 4;
  const int64_t chunks = std::min(count, workers * kChunksEach);
#pragma omp parallel for num_threads(static_cast <int>(workers)) schedule(dynamic, 1)
  for (int64_t chunk = 0; chunk < chunks; ++chunk) function(count * chunk / chunks, count * (chunk + 1) / chunks);
}

// function(item, worker) for each item, handed out one by one: for items of unequal cost whose results do not depend on
// who computes them. worker < threads.
template <typename Function>
void parallel_items(int threads, int64_t count, int64_t cost, Function&& function) {
  if (count <= 0 || rehearsing()) return;
  const int64_t worth = std::max<int64_t>(1, count * std::max<int64_t>(cost, 1) / kWorthAThread);
  const int64_t workers = std::min({static_cast<int64_t>(threads), count, worth});
  if (workers <= 1) {
    for (int64_t item = 0; item < count; ++item) function(item, 0);
    return;
  }
#pragma omp parallel for num_threads(static_cast <int>(workers)) schedule(dynamic, 1)
  for (int64_t item = 0; item < count; ++item) function(item, omp_get_thread_num());
}

// What oneDNN sees as the thread count, for as long as this lives.
class ThreadsForOneDnn {
 public:
  explicit ThreadsForOneDnn(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~ThreadsForOneDnn() { omp_set_num_threads(before_); }
  ThreadsForOneDnn(const ThreadsForOneDnn&) = delete;
  ThreadsForOneDnn& operator=(const ThreadsForOneDnn&) = delete;

 private:
  int before_;
};

}  // namespace lockstep::cpu
