// In-process part of benchmarks/tensor_diff.py: the comparison of two files against a plain read of the same maps.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "base/json.h"
#include "io/npy.h"
#include "measure/metrics.h"
#include "tensor/statistics.h"

namespace lockstep {
namespace {

double best_secs(int repeats, const std::function<void()>& work) {
  double best = 1e300;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// Every byte once, by all threads, with nothing done to it but an addition that cannot be left out.
uint64_t plain_read(const Tensor& tensor) {
  constexpr size_t kChunk = 1 << 20;
  const auto bytes = tensor.contiguous_bytes();
  uint64_t sum = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : sum)
  for (size_t at = 0; at < bytes.size(); at += kChunk) {
    const auto* words = reinterpret_cast<const uint64_t*>(bytes.data() + at);
    const size_t count = std::min(kChunk, bytes.size() - at) / 8;
    uint64_t lanes[8] = {};
    for (size_t i = 0; i + 8 <= count; i += 8)
      for (size_t lane = 0; lane < 8; ++lane) lanes[lane] += words[i + lane];
    for (const uint64_t lane : lanes) sum += lane;
  }
  return sum;
}

int run(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: bench_tensor_diff REFERENCE.npy CANDIDATE.npy\n");
    return 2;
  }
  constexpr int kRepeats = 5;
  uint64_t sum = 0;
  // A fresh map each: the page faults are part of reading a file.
  const double fresh_read = best_secs(3, [&] { sum += plain_read(read_npy(argv[1])) + plain_read(read_npy(argv[2])); });
  const double fresh_diff = best_secs(3, [&] { compare_tensors(read_npy(argv[1]), read_npy(argv[2])); });
  const Tensor reference = read_npy(argv[1]), candidate = read_npy(argv[2]);
  const double read = best_secs(kRepeats, [&] { sum += plain_read(reference) + plain_read(candidate); });
  const double diff = best_secs(kRepeats, [&] { compare_tensors(reference, candidate); });
  const double stats = best_secs(kRepeats, [&] { tensor_statistics(reference); });
  const Json result = {{"threads", omp_get_max_threads()},
                       {"bytes", reference.bytes() + candidate.bytes()},
                       {"fresh_read_secs", fresh_read},
                       {"fresh_diff_secs", fresh_diff},
                       {"read_secs", read},
                       {"diff_secs", diff},
                       {"stats_secs", stats},
                       {"sum", sum}};
  fmt::print("{}\n", result.dump());
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run(argc, argv);
}
