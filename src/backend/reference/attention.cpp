#include <cmath>
#include <limits>

#include "backend/reference/access.h"
#include "backend/reference/kernels.h"

namespace lockstep::reference {
namespace {

size_t segment_of(std::span<const int64_t> ends, int64_t token) {
  size_t segment = 0;
  while (segment < ends.size() && token >= ends[segment]) ++segment;
  return segment;
}

bool sees(const AttentionArgs& args, int64_t b, int64_t s, int64_t t) {
  if (args.causal && t > s + args.k.dim(1) - args.q.dim(1)) return false;
  if (args.key_mask && load(*args.key_mask, {b, t}) == 0) return false;
  return args.segment_ends.empty() || segment_of(args.segment_ends, s) == segment_of(args.segment_ends, t);
}

}  // namespace

void attention(const AttentionArgs& args) {
  const int64_t batch = args.q.dim(0), queries = args.q.dim(1), heads = args.q.dim(2), width = args.q.dim(3);
  const int64_t keys = args.k.dim(1), heads_per_group = heads / args.k.dim(2);
  std::vector<double> weight(static_cast<size_t>(keys));
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t s = 0; s < queries; ++s) {
        const int64_t g = h / heads_per_group;
        double largest = -std::numeric_limits<double>::infinity();
        for (int64_t t = 0; t < keys; ++t) {
          double dot = 0;
          for (int64_t d = 0; d < width; ++d) dot += load(args.q, {b, s, h, d}) * load(args.k, {b, t, g, d});
          weight[static_cast<size_t>(t)] =
              sees(args, b, s, t) ? dot * args.scale : -std::numeric_limits<double>::infinity();
          largest = std::max(largest, weight[static_cast<size_t>(t)]);
        }
        double total = 0;
        for (double& w : weight) total += w = std::exp(w - largest);
        for (int64_t d = 0; d < width; ++d) {
          double sum = 0;
          for (int64_t t = 0; t < keys; ++t)
            if (weight[static_cast<size_t>(t)] != 0) sum += weight[static_cast<size_t>(t)] * load(args.v, {b, t, g, d});
          store(args.out, {b, s, h, d}, sum / total);
        }
      }
}

}  // namespace lockstep::reference
