// An answer must not depend on how busy the machine is: work is counted, not time.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "compare/comparison.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

// Attention over so many tokens that its search ends by its budget, with weights that no rule makes.
RunMaker crowded(bool wrong) {
  constexpr int64_t kTokens = 400, kWidth = 64, kHeads = 2, kHead = kWidth / kHeads;
  const Values q = noise({1, kTokens, kWidth}, 1), k = noise({1, kTokens, kWidth}, 2),
               v = noise({1, kTokens, kWidth}, 3);
  Values out = make_values(q.shape);
  for (int64_t h = 0; h < kHeads; ++h)
    for (int64_t t = 0; t < kTokens; ++t) {
      std::vector<double> sums(kHead);
      double total = 0;
      for (int64_t key = 0; key < kTokens; ++key) {
        const double score = dot(q.row(t).subspan(static_cast<size_t>(h * kHead), kHead),
                                 k.row(key).subspan(static_cast<size_t>(h * kHead), kHead)) /
                             std::sqrt(static_cast<double>(kHead));
        const double weight = std::exp(wrong ? score + 0.3 * std::sin(7 * score + static_cast<double>(key)) : score);
        total += weight;
        for (size_t j = 0; j < sums.size(); ++j) sums[j] += weight * v.row(key)[static_cast<size_t>(h * kHead) + j];
      }
      for (size_t j = 0; j < sums.size(); ++j)
        out.row(t)[static_cast<size_t>(h * kHead) + j] = static_cast<float>(sums[j] / total);
    }
  RunMaker run;
  run.add("net.attn.to_q", q).add("net.attn.to_k", k).add("net.attn.to_v", v);
  run.in("net.attn.to_out", out).add("net.attn.to_out", out);
  return run;
}

TEST(BesideALoad, TheAnswerIsTheSameByteForByte) {
  const RunMaker reference = crowded(false), candidate = crowded(true);
  const auto answer = [&] { return json_from(compared(reference, candidate), reference.run, candidate.run).dump(); };
  const std::string alone = answer();
  std::atomic<bool> ends = false;
  std::vector<std::thread> load;
  for (unsigned i = 0; i < std::max(2U, std::thread::hardware_concurrency()); ++i)
    load.emplace_back([&] {
      volatile double x = 1;
      while (!ends) x = x * 1.0000001 + 1e-9;
    });
  const std::string beside = answer();
  ends = true;
  for (std::thread& thread : load) thread.join();
  EXPECT_EQ(alone, beside);
}

}  // namespace
}  // namespace lockstep
