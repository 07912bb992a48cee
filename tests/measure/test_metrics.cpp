// The comparison against a plain loop in long double, over dtypes, strides and sizes that exercise every path.
#include "measure/metrics.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>
#include <random>

#include "tensor/convert.h"

namespace lockstep {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Naive {
  long double errors = 0, squared = 0, rr = 0, cc = 0, rc = 0;
  double max_abs = 0, max_rel = 0;
  int64_t mismatches = 0, worst = -1;
};

Naive naive(const Tensor& reference, const Tensor& candidate, const Tolerance& tolerance) {
  const std::vector<double> r = to_doubles(reference), c = to_doubles(candidate);
  Naive n;
  for (size_t i = 0; i < r.size(); ++i) {
    const double error = std::abs(c[i] - r[i]);
    n.errors += error;
    n.squared += static_cast<long double>(error) * error;
    n.rr += static_cast<long double>(r[i]) * r[i];
    n.cc += static_cast<long double>(c[i]) * c[i];
    n.rc += static_cast<long double>(r[i]) * c[i];
    if (error > n.max_abs) {
      n.max_abs = error;
      n.worst = static_cast<int64_t>(i);
    }
    if (r[i] != 0) n.max_rel = std::max(n.max_rel, error / std::abs(r[i]));
    n.mismatches += error > tolerance.absolute + tolerance.relative * std::abs(r[i]);
  }
  return n;
}

void expect_like_naive(const Tensor& reference, const Tensor& candidate, const Tolerance& tolerance) {
  const TensorComparison got = compare_tensors(reference, candidate, tolerance);
  const Naive want = naive(reference, candidate, tolerance);
  const long double count = static_cast<long double>(reference.numel());
  const auto near = [](double a, double b, double relative) {
    EXPECT_LE(std::abs(a - b), relative * std::abs(b)) << a << " " << b;
  };
  EXPECT_EQ(got.count, reference.numel());
  EXPECT_EQ(got.mismatches, want.mismatches);
  EXPECT_DOUBLE_EQ(got.max_abs, want.max_abs);
  near(got.max_rel, want.max_rel, 2e-7);
  near(got.mean_abs, static_cast<double>(want.errors / count), 1e-13);
  near(got.rmse, static_cast<double>(std::sqrt(want.squared / count)), 1e-13);
  near(got.relative_l2, static_cast<double>(std::sqrt(want.squared / want.rr)), 1e-13);
  // Vectors of two doubles, as ARM has them, make sums of four times as many roundings as those of eight.
  EXPECT_NEAR(got.cosine, static_cast<double>(want.rc / std::sqrt(want.rr * want.cc)), 4e-15);
  near(got.sqnr_db, static_cast<double>(10 * std::log10(want.rr / want.squared)), 1e-12);
  ASSERT_TRUE(got.worst.has_value());
  EXPECT_EQ(got.worst->index, index_from_position(reference.shape(), want.worst));
}

// Values and a disturbed copy, in any two dtypes.
std::pair<Tensor, Tensor> random_pair(DType first, DType second, const Shape& shape, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0.5, 40);
  Tensor r = Tensor::empty(DType::kF64, shape), c = Tensor::empty(DType::kF64, shape);
  for (int64_t i = 0; i < r.numel(); ++i) {
    const double x = normal(engine);
    r.mutable_data<double>()[i] = i % 97 == 5 ? 0 : x;
    c.mutable_data<double>()[i] = i % 5 == 0 ? x : x + normal(engine) * (i % 7 == 0 ? 0.2 : 1e-6);
  }
  return {r.to(first), c.to(second)};
}

using DTypePair = std::pair<DType, DType>;
class OverDTypes : public ::testing::TestWithParam<DTypePair> {};

TEST_P(OverDTypes, AgreesWithPlainLoop) {
  const auto [first, second] = GetParam();
  for (const int64_t size : {int64_t{1}, int64_t{7}, int64_t{2047}, int64_t{2049}, int64_t{300001}}) {
    const auto [r, c] = random_pair(first, second, {size}, static_cast<unsigned>(size));
    if (naive(r, c, {}).max_abs == 0) continue;  // one element may come out equal
    expect_like_naive(r, c, {"test", 1e-3, 1e-3});
  }
}

INSTANTIATE_TEST_SUITE_P(All, OverDTypes,
                         ::testing::Values(DTypePair{DType::kF32, DType::kF32}, DTypePair{DType::kBF16, DType::kBF16},
                                           DTypePair{DType::kF16, DType::kF16}, DTypePair{DType::kF64, DType::kF64},
                                           DTypePair{DType::kF32, DType::kBF16}, DTypePair{DType::kF16, DType::kF64},
                                           DTypePair{DType::kF8E4M3, DType::kF32}, DTypePair{DType::kI32, DType::kI32},
                                           DTypePair{DType::kI8, DType::kF32}, DTypePair{DType::kI64, DType::kI64},
                                           DTypePair{DType::kI16, DType::kI32}));

TEST(Comparison, HonoursStrides) {
  const auto [r, c] = random_pair(DType::kF32, DType::kF32, {37, 41, 53}, 3);
  const Tolerance tolerance{"test", 1e-4, 1e-4};
  expect_like_naive(r.transpose(0, 2), c.transpose(0, 2), tolerance);
  expect_like_naive(r.slice(2, 3, 50, 7), c.slice(2, 1, 48, 7), tolerance);
  expect_like_naive(r.select(1, 4).unsqueeze(1).broadcast_to({37, 60, 53}),
                    c.select(1, 4).unsqueeze(1).broadcast_to({37, 60, 53}), tolerance);
  const TensorComparison same = compare_tensors(r.transpose(0, 1), r.transpose(0, 1).contiguous());
  EXPECT_EQ(same.max_abs, 0);
  EXPECT_TRUE(same.match());
  const TensorComparison scrambled =
      compare_tensors(r.transpose(0, 1).contiguous(), r.contiguous().reshape({41, 37, 53}));
  EXPECT_FALSE(scrambled.match()) << "a strided view read as contiguous would look equal here";
}

TEST(Comparison, SameDigitsOnAnyNumberOfThreads) {
  const auto [r, c] = random_pair(DType::kF32, DType::kF32, {3000000}, 9);
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const TensorComparison one = compare_tensors(r, c);
  omp_set_num_threads(3);
  const TensorComparison three = compare_tensors(r, c);
  omp_set_num_threads(before);
  EXPECT_EQ(one.rmse, three.rmse);
  EXPECT_EQ(one.mean_abs, three.mean_abs);
  EXPECT_EQ(one.cosine, three.cosine);
  EXPECT_EQ(one.max_rel, three.max_rel);
  EXPECT_EQ(one.worst->index, three.worst->index);
  EXPECT_EQ(one.quantiles[2].value, three.quantiles[2].value);
}

TEST(Comparison, SumsKeepTheirDigits) {
  // 2^25 errors of 1e-4 beside values of 1000: a float sum would stop growing at 2^24, a naive double keeps only ten
  // digits.
  const int64_t n = int64_t{1} << 25;
  Tensor r = Tensor::empty(DType::kF32, {n}), c = Tensor::empty(DType::kF32, {n});
  for (int64_t i = 0; i < n; ++i) {
    r.mutable_data<float>()[i] = 1000.0f;
    c.mutable_data<float>()[i] = 1000.0f + 0x1p-13f;
  }
  const TensorComparison got = compare_tensors(r, c);
  EXPECT_DOUBLE_EQ(got.mean_abs, 0x1p-13);
  EXPECT_DOUBLE_EQ(got.rmse, 0x1p-13);
  EXPECT_NEAR(got.relative_l2, 0x1p-13 / 1000, 1e-18);
  EXPECT_EQ(got.reference.std, 0);
  EXPECT_EQ(got.reference.mean, 1000);
}

TEST(Comparison, NonFinitePairs) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor r = Tensor::from<float>({7}, {1, nan, inf, -inf, 2, 3, inf});
  const Tensor same = compare_tensors(r, r).match() ? r : Tensor();
  ASSERT_TRUE(same.defined()) << "NaN against NaN and an infinity against itself are equal";
  const Tensor c = Tensor::from<float>({7}, {1, nan, inf, inf, nan, 3.5, 4});
  const TensorComparison got = compare_tensors(r, c, Tolerance{"wide", 100, 0});
  EXPECT_EQ(got.nonfinite_mismatches, 3);
  EXPECT_EQ(got.mismatches, 3);
  EXPECT_EQ(got.finite_pairs, 2);
  EXPECT_EQ(got.max_abs, kInf);
  EXPECT_EQ(got.max_rel, kInf);
  EXPECT_DOUBLE_EQ(got.mean_abs, 0.25);
  EXPECT_EQ(got.worst->index, Shape{3});
  EXPECT_EQ(got.reference.nan, 1);
  EXPECT_EQ(got.reference.inf, 3);
  EXPECT_EQ(got.candidate.nan, 2);
  EXPECT_EQ(got.candidate.inf, 2);
  EXPECT_EQ(got.histogram.total(), 2);
}

TEST(Comparison, OneNaNFarInsideABigTensor) {
  Tensor r = Tensor::zeros(DType::kF32, {1000000});
  Tensor c = Tensor::zeros(DType::kF32, {1000000});
  c.mutable_data<float>()[777777] = static_cast<float>(kNaN);
  c.mutable_data<float>()[3] = 1;
  const TensorComparison got = compare_tensors(r, c);
  EXPECT_FALSE(got.match());
  EXPECT_EQ(got.worst->index, Shape{777777});
  EXPECT_EQ(got.mismatches, 2);
  EXPECT_EQ(got.finite_pairs, 999999);
}

TEST(Comparison, EmptyZeroDimensionalAndUnequalShapes) {
  const TensorComparison empty =
      compare_tensors(Tensor::zeros(DType::kF32, {0, 4}), Tensor::zeros(DType::kF32, {0, 4}));
  EXPECT_TRUE(empty.match());
  EXPECT_EQ(empty.count, 0);
  EXPECT_EQ(empty.cosine, 1);
  EXPECT_FALSE(empty.worst.has_value());
  const TensorComparison scalar = compare_tensors(Tensor::from<float>({}, {2}), Tensor::from<float>({}, {2.5}));
  EXPECT_EQ(scalar.count, 1);
  EXPECT_EQ(scalar.max_abs, 0.5);
  EXPECT_EQ(scalar.worst->index, Shape{});
  const TensorComparison unequal =
      compare_tensors(Tensor::from<float>({2}, {2, 3}), Tensor::from<float>({1, 2}, {2, 3}));
  EXPECT_FALSE(unequal.match());
  EXPECT_FALSE(unequal.same_shape);
  EXPECT_EQ(unequal.reference.max, 3);
}

TEST(Comparison, ZerosAndSigns) {
  const Tensor zeros = Tensor::from<float>({3}, {0, -0.0f, 0}), ones = Tensor::from<float>({3}, {1, 1, 1});
  const TensorComparison equal = compare_tensors(zeros, Tensor::from<float>({3}, {-0.0f, 0, 0}), Tolerance{});
  EXPECT_TRUE(equal.match());
  EXPECT_EQ(equal.ulps->max, 0u);
  EXPECT_EQ(equal.cosine, 1);
  EXPECT_EQ(equal.relative_l2, 0);
  EXPECT_EQ(equal.sqnr_db, kInf);
  const TensorComparison from_zero = compare_tensors(zeros, ones);
  EXPECT_EQ(from_zero.max_rel, 0) << "a reference of 0 has no relative error";
  EXPECT_EQ(from_zero.relative_l2, kInf);
  EXPECT_EQ(from_zero.cosine, 0);
  EXPECT_EQ(from_zero.sqnr_db, -kInf);
  EXPECT_EQ(from_zero.range_ratio, 1);
}

TEST(Comparison, UlpsByDType) {
  const float next = std::nextafter(1.0f, 2.0f);
  EXPECT_EQ(compare_tensors(Tensor::from<float>({1}, {1}), Tensor::from<float>({1}, {next})).ulps->max, 1u);
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(compare_tensors(Tensor::from<float>({1}, {tiny}), Tensor::from<float>({1}, {-tiny})).ulps->max, 2u);
  EXPECT_EQ(
      compare_tensors(Tensor::from<double>({1}, {1}), Tensor::from<double>({1}, {std::nextafter(1.0, 0.0)})).ulps->max,
      1u);
  EXPECT_FALSE(compare_tensors(Tensor::from<float>({1}, {1}), Tensor::from<double>({1}, {1})).ulps.has_value());
  // 40 elements, so that the vector path is taken: bf16 0x3F80 and 0x3F83 are three steps apart, and so for f16 and fp8
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2}) {
    Tensor r = Tensor::zeros(dtype, {40}), c = Tensor::zeros(dtype, {40});
    const size_t item = dtype_bytes(dtype);
    for (size_t i = 0; i < 40; ++i) {
      r.mutable_strided_data()[i * item] = std::byte{0x10};
      c.mutable_strided_data()[i * item] = std::byte{0x13};
    }
    const TensorComparison got = compare_tensors(r, c);
    EXPECT_EQ(got.ulps->max, 3u) << dtype_name(dtype);
    EXPECT_DOUBLE_EQ(got.ulps->mean, 3) << dtype_name(dtype);
  }
}

TEST(Comparison, IntegersBeyondDoubles) {
  const int64_t big = (int64_t{1} << 53);
  const TensorComparison got =
      compare_tensors(Tensor::from<int64_t>({2}, {big, std::numeric_limits<int64_t>::min()}),
                      Tensor::from<int64_t>({2}, {big + 1, std::numeric_limits<int64_t>::max()}));
  EXPECT_EQ(got.mismatches, 2);
  EXPECT_EQ(got.ulps->max, std::numeric_limits<uint64_t>::max());
}

TEST(Comparison, HugeAndTinyValues) {
  const float huge = std::numeric_limits<float>::max();
  Tensor r = Tensor::zeros(DType::kF32, {64}), c = Tensor::zeros(DType::kF32, {64});
  r.mutable_data<float>()[5] = huge;
  c.mutable_data<float>()[5] = -huge;
  const TensorComparison overflow = compare_tensors(r, c);
  EXPECT_DOUBLE_EQ(overflow.max_abs, 2.0 * huge);
  EXPECT_EQ(overflow.nonfinite_mismatches, 0);
  EXPECT_DOUBLE_EQ(overflow.cosine, -1);
  const TensorComparison squares =
      compare_tensors(Tensor::from<double>({2}, {1e300, 1e-300}), Tensor::from<double>({2}, {1.5e300, 1e-300}));
  EXPECT_DOUBLE_EQ(squares.relative_l2, 0.5);
  EXPECT_DOUBLE_EQ(squares.cosine, 1);
}

TEST(Comparison, CountsZerosAndDenormalsByDType) {
  Tensor r = Tensor::zeros(DType::kF16, {100});
  auto* bits = reinterpret_cast<uint16_t*>(r.mutable_strided_data());
  for (int i = 0; i < 100; ++i) bits[i] = static_cast<uint16_t>(i < 10 ? 0x8000 : i < 30 ? 0x0001 : 0x3C00);
  const TensorComparison got = compare_tensors(r, r.to(DType::kF32));
  EXPECT_EQ(got.reference.zero, 10);
  EXPECT_EQ(got.reference.denormal, 20);
  EXPECT_EQ(got.candidate.denormal, 0) << "what is denormal in f16 is an ordinary f32";
  EXPECT_TRUE(got.match());
}

TEST(Comparison, RangesAndQuantiles) {
  const int64_t n = 100000;
  Tensor r = Tensor::empty(DType::kF32, {n}), c = Tensor::empty(DType::kF32, {n});
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<double> errors;
  for (int64_t i = 0; i < n; ++i) {
    const float x = uniform(engine);
    r.mutable_data<float>()[i] = x;
    c.mutable_data<float>()[i] = 1.5f * x;
    errors.push_back(std::abs(static_cast<double>(c.mutable_data<float>()[i]) - x));
  }
  std::sort(errors.begin(), errors.end());
  const TensorComparison got = compare_tensors(r, c);
  EXPECT_NEAR(got.range_ratio, 1.5, 1e-6);
  for (const auto& [q, value] : got.quantiles) {
    const double exact = errors[static_cast<size_t>(q * static_cast<double>(n - 1))];
    EXPECT_NEAR(value, exact, exact / 16) << q;
  }
}

}  // namespace
}  // namespace lockstep
