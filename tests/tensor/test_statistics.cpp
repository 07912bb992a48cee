#include "tensor/statistics.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>
#include <random>

#include "tensor/convert.h"

namespace lockstep {
namespace {

void expect_like_naive(const Tensor& tensor) {
  const std::vector<double> values = to_doubles(tensor);
  long double sum = 0, squares = 0, apart = 0;
  double min = values.at(0), max = values[0];
  int64_t zero = 0;
  for (const double x : values) {
    sum += x;
    squares += static_cast<long double>(x) * x;
    min = std::min(min, x);
    max = std::max(max, x);
    zero += x == 0;
  }
  const long double n = static_cast<long double>(values.size()), mean = sum / n;
  for (const double x : values) apart += (x - mean) * (x - mean);
  const Statistics got = tensor_statistics(tensor);
  const double std = static_cast<double>(std::sqrt(apart / n)), rms = static_cast<double>(std::sqrt(squares / n));
  EXPECT_EQ(got.count, tensor.numel());
  EXPECT_EQ(got.min, min);
  EXPECT_EQ(got.max, max);
  EXPECT_EQ(got.zero, zero);
  EXPECT_NEAR(got.mean, static_cast<double>(mean), 1e-12 * rms);
  EXPECT_NEAR(got.std, std, 1e-10 * std);
  EXPECT_NEAR(got.rms, rms, 1e-12 * rms);
  EXPECT_EQ(got.absmax, std::max(std::abs(min), std::abs(max)));
}

TEST(Statistics, AgreesWithPlainLoopOnEveryDType) {
  std::mt19937 engine(5);
  std::normal_distribution<double> normal(3, 20);
  for (int type = 0; type < kDTypeCount; ++type) {
    const DType dtype = static_cast<DType>(type);
    Tensor values = Tensor::empty(DType::kF64, {31, 7, 113});
    for (int64_t i = 0; i < values.numel(); ++i) values.mutable_data<double>()[i] = normal(engine);
    const Tensor tensor = values.to(dtype);
    SCOPED_TRACE(dtype_name(dtype));
    expect_like_naive(tensor);
    expect_like_naive(tensor.transpose(0, 2));
    expect_like_naive(tensor.slice(2, 5, 100, 3));
  }
}

TEST(Statistics, LargeMeanSmallSpread) {
  Tensor tensor = Tensor::empty(DType::kF32, {1 << 20});
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.mutable_data<float>()[i] = 4096.0f + static_cast<float>(i % 2) * 0.001953125f;
  const Statistics got = tensor_statistics(tensor);
  EXPECT_NEAR(got.std, 0.001953125 / 2, 1e-9);
}

TEST(Statistics, NonFiniteAreCountedAndLeftOut) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  Tensor tensor = Tensor::zeros(DType::kF32, {5000});
  float* data = tensor.mutable_data<float>();
  for (int i = 0; i < 5000; ++i) data[i] = i % 2 ? 1.0f : 3.0f;
  data[10] = nan;
  data[4999] = -inf;
  data[4000] = 1e-40f;
  data[4001] = -0.0f;
  const Statistics got = tensor_statistics(tensor);
  EXPECT_EQ(got.nan, 1);
  EXPECT_EQ(got.inf, 1);
  EXPECT_EQ(got.denormal, 1);
  EXPECT_EQ(got.zero, 1);
  EXPECT_EQ(got.finite(), 4998);
  EXPECT_EQ(got.max, 3);
  EXPECT_EQ(got.min, 0);
  EXPECT_NEAR(got.mean, 2, 1e-2);
}

TEST(Statistics, NothingFinite) {
  for (const Tensor& tensor : {Tensor::zeros(DType::kF32, {0}), Tensor::from<float>({1}, {NAN})}) {
    const Statistics got = tensor_statistics(tensor);
    EXPECT_TRUE(std::isnan(got.min) && std::isnan(got.max) && std::isnan(got.mean) && std::isnan(got.std));
  }
  EXPECT_EQ(tensor_statistics(Tensor::from<int32_t>({}, {-4})).mean, -4);
}

TEST(Statistics, SameDigitsOnAnyNumberOfThreads) {
  std::mt19937 engine(6);
  std::normal_distribution<float> normal(3, 20);
  Tensor tensor = Tensor::empty(DType::kF32, {2000003});
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.mutable_data<float>()[i] = normal(engine);
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Statistics one = tensor_statistics(tensor);
  omp_set_num_threads(4);
  const Statistics four = tensor_statistics(tensor);
  omp_set_num_threads(before);
  EXPECT_EQ(one.mean, four.mean);
  EXPECT_EQ(one.std, four.std);
}

}  // namespace
}  // namespace lockstep
