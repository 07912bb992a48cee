#include <cmath>
#include <limits>

#include "backend/cpu/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/reduce_rows.cpp"
#include "tensor/simd_targets.h"
// after the choice of targets
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after the target headers
#include "backend/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

// step(value, vector, part) with four independent values in turn: one would wait for each addition.
template <typename T, typename Step>
HWY_INLINE void four_chains(const T* x, int64_t width, Vector (&chain)[4], Step&& step) {
  const int64_t lane_count = lanes();
  int64_t i = 0;
  for (; i + 4 * lane_count <= width; i += 4 * lane_count)
    for (int c = 0; c < 4; ++c) chain[c] = step(chain[c], load(x + i + c * lane_count), Whole{});
  sweep(width - i, [&](int64_t at, auto part) HWY_ATTR { chain[0] = step(chain[0], load(x + i + at, part), part); });
}

template <typename T>
HWY_INLINE float sum_row(const T* x, int64_t width) {
  Vector chain[4] = {hn::Zero(kFloat), hn::Zero(kFloat), hn::Zero(kFloat), hn::Zero(kFloat)};
  four_chains(x, width, chain,
              [](Vector sum, Vector v, auto part) HWY_ATTR { return hn::Add(sum, masked(v, hn::Zero(kFloat), part)); });
  return sum_of(hn::Add(hn::Add(chain[0], chain[1]), hn::Add(chain[2], chain[3])));
}

template <typename T>
HWY_INLINE float max_row(const T* x, int64_t width) {
  const auto lowest = hn::Set(kFloat, -std::numeric_limits<float>::infinity());
  Vector chain[4] = {lowest, lowest, lowest, lowest};
  Vector strange = hn::Zero(kFloat);  // becomes NaN with the first NaN, which a maximum alone may lose
  four_chains(x, width, chain, [&](Vector top, Vector v, auto part) HWY_ATTR {
    const Vector seen = masked(v, lowest, part);
    strange = hn::Add(strange, hn::IfThenElseZero(hn::IsNaN(seen), seen));
    return hn::Max(top, seen);
  });
  const float not_a_number = sum_of(strange);
  if (std::isnan(not_a_number)) return not_a_number;
  return max_of(hn::Max(hn::Max(chain[0], chain[1]), hn::Max(chain[2], chain[3])));
}

template <typename T>
void reduce_as(const ReduceRows& task, int64_t begin, int64_t end) {
  const int64_t width = task.x.columns();
  for (int64_t row = begin; row < end; ++row) {
    const T* x = task.x.at<T>(row);
    float result = task.op == ReduceOp::kMax ? max_row(x, width) : sum_row(x, width);
    if (task.op == ReduceOp::kMean) result /= static_cast<float>(width);
    put(hn::Set(kFloat, result), task.out.at<T>(row), Tail{1});
  }
}

void Reduce(const ReduceRows& task, int64_t begin, int64_t end) {
  if (task.dtype == DType::kBF16)
    reduce_as<BFloat16>(task, begin, end);
  else if (task.dtype == DType::kF16)
    reduce_as<Half>(task, begin, end);
  else
    reduce_as<float>(task, begin, end);
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {

HWY_EXPORT(Reduce);

void reduce_rows(const ReduceRows& task, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Reduce)(task, begin, end);
}

}  // namespace lockstep::cpu
#endif
