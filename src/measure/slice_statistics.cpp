#include "measure/slice_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/interrupt.h"
#include "measure/float_reader.h"
#include "measure/sample.h"

namespace lockstep {
namespace {

constexpr int64_t kAtOnce = 1 << 15;        // values that are held as doubles
constexpr int64_t kMostSegments = 1 << 10;  // places at which slices are read that lie far apart

// Finite values of one slice. Sums are of distances from the first value: numbers far from zero keep their digits.
struct SliceSums {
  double first = 0, sum = 0, squares = 0;
  double min = std::numeric_limits<double>::infinity(), max = -min;
  int64_t finite = 0, bad = 0;

  void add(const double* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const double value = values[i];
      if (!std::isfinite(value)) {
        ++bad;
        continue;
      }
      if (finite == 0) first = value;
      ++finite;
      const double distance = value - first;
      sum += distance, squares += distance * distance;
      min = std::min(min, value), max = std::max(max, value);
    }
  }
};

// The tensor as [outer, size, inner] around the axis, and what is read of it: of each slice, at each of the outer
// places, the same neighbours.
struct SlicePlan {
  int64_t outer = 1, size = 1, inner = 1;
  std::vector<int64_t> indices;
  std::vector<Neighbours> outer_runs;
  Neighbours of_inner;

  int64_t slab() const { return size * inner; }
};

SlicePlan plan_slices(const Tensor& tensor, int axis, int64_t most_slices) {
  SlicePlan plan;
  plan.size = tensor.dim(axis);
  for (int k = 0; k < static_cast<int>(tensor.rank()); ++k)
    if (k != axis) (k < axis ? plan.outer : plan.inner) *= tensor.dim(k);
  const int64_t columns = tensor.dim(-1), elements = values_to_read(tensor, tensor.numel() / columns, columns);
  int64_t slices = std::min(plan.size, most_slices);
  if (elements >= plan.slab()) {
    plan.outer_runs = spread_runs(plan.outer, elements / plan.slab(), kSampledPlaces);
    plan.of_inner = {0, plan.inner};
  } else {
    slices = std::min(slices, kMostSegments);
    const int64_t places = std::clamp<int64_t>(kMostSegments / slices, 1, plan.outer);
    plan.outer_runs = spread_runs(plan.outer, places, places);
    plan.of_inner = spread_runs(plan.inner, std::max<int64_t>(1, elements / (slices * places)), 1).front();
  }
  for (int64_t k = 0; k < slices; ++k) plan.indices.push_back(k * plan.size / slices);
  return plan;
}

// Slabs that lie one behind the other and fit into memory together.
void add_slabs(const Tensor& tensor, const SlicePlan& plan, std::vector<SliceSums>& sums) {
  std::vector<Neighbours> elements;
  for (const Neighbours& run : plan.outer_runs) elements.push_back({run.begin * plan.slab(), run.count * plan.slab()});
  fetch_soon(tensor, elements);
  ValueReader<double> reader(tensor);
  const int64_t at_once = kAtOnce / plan.slab();
  std::vector<double> values(static_cast<size_t>(std::min(at_once, plan.outer) * plan.slab()));
  for (const Neighbours& run : plan.outer_runs)
    for (int64_t done = 0; done < run.count; done += at_once) {
      check_interrupt("tensor statistics");
      const int64_t slabs = std::min(at_once, run.count - done);
      reader.read((run.begin + done) * plan.slab(), slabs * plan.slab(), values.data());
      for (int64_t slab = 0; slab < slabs; ++slab)
        for (size_t k = 0; k < sums.size(); ++k)
          sums[k].add(values.data() + slab * plan.slab() + plan.indices[k] * plan.inner, plan.inner);
    }
}

// Slices that lie far apart: each is read by itself.
void add_segments(const Tensor& tensor, const SlicePlan& plan, std::vector<SliceSums>& sums) {
  const auto each_segment = [&](auto&& use) {
    for (const Neighbours& run : plan.outer_runs)
      for (int64_t outer = run.begin; outer < run.begin + run.count; ++outer) {
        check_interrupt("tensor statistics");
        for (size_t k = 0; k < sums.size(); ++k)
          use(k, (outer * plan.size + plan.indices[k]) * plan.inner + plan.of_inner.begin);
      }
  };
  if (plan.of_inner.count < plan.inner) {  // few of many
    std::vector<Neighbours> elements;
    each_segment([&](size_t, int64_t begin) { elements.push_back({begin, plan.of_inner.count}); });
    fetch_soon(tensor, elements);
  }
  ValueReader<double> reader(tensor);
  std::vector<double> values(static_cast<size_t>(std::min(kAtOnce, plan.of_inner.count)));
  each_segment([&](size_t k, int64_t begin) {
    for (int64_t done = 0; done < plan.of_inner.count; done += kAtOnce) {
      const int64_t count = std::min(kAtOnce, plan.of_inner.count - done);
      reader.read(begin + done, count, values.data());
      sums[k].add(values.data(), count);
    }
  });
}

}  // namespace

SliceStatistics slice_statistics(const Tensor& tensor, int axis, int64_t most_slices) {
  SliceStatistics out;
  if (tensor.numel() == 0) return out;
  SlicePlan plan = plan_slices(tensor, axis, most_slices);
  std::vector<SliceSums> sums(plan.indices.size());
  if (plan.slab() <= kAtOnce)
    add_slabs(tensor, plan, sums);
  else
    add_segments(tensor, plan, sums);
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (const SliceSums& one : sums) {
    const double n = static_cast<double>(one.finite), mean = one.sum / n, any = one.finite > 0 ? 0 : kNone;
    out.mean.push_back(any + one.first + mean);
    out.std.push_back(any + std::sqrt(std::max(0.0, one.squares / n - mean * mean)));
    out.min.push_back(any + one.min), out.max.push_back(any + one.max);
    out.bad.push_back(one.bad);
    out.looked_at += one.finite + one.bad;
  }
  out.indices = std::move(plan.indices);
  out.sampled = out.looked_at < tensor.numel();
  return out;
}

}  // namespace lockstep
