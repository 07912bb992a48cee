// Sums over 10^9 pairs, held to what whole-number arithmetic says. The tensors are one row repeated by a stride of 0,
// so that they take no memory and every figure is known exactly: it is that of the row.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "measure/metrics.h"
#include "support/sanitized.h"

namespace lockstep {
namespace {

constexpr int64_t kPeriod = 2000;          // no divisor of a block: every block holds another part of the row
constexpr float kUnit = 1.0f / (1 << 12);  // values are whole numbers of this
// What 10^9 additions may leave: the moments of a chunk are 2^18 roundings of a double that mostly cancel. A float
// loses half of all digits.
constexpr double kRoom = 0x1p-46;

// What a float's bits count as, in the order of the values.
int64_t ordered(float value) {
  const int32_t bits = std::bit_cast<int32_t>(value);
  return bits < 0 ? -static_cast<int64_t>(bits & 0x7FFFFFFF) : bits;
}

struct Row {
  Tensor reference, candidate;
  int64_t r = 0, rr = 0, c = 0, cc = 0, rc = 0, error = 0, squared_error = 0, ulps = 0, mismatches = 0;  // in units
};

// Numbers of 21 bits of either sign, whose squares no float adds up, and errors of 18 bits in three of four places.
Row make_row(DType dtype) {
  std::mt19937 engine(7);
  std::vector<float> reference, candidate;
  Row row;
  for (int64_t i = 0; i < kPeriod; ++i) {
    const int64_t r = static_cast<int64_t>(engine() >> 11) - (1 << 20) + 1;
    const int64_t q = i % 4 == 0 ? 0 : static_cast<int64_t>(engine() >> 14) - (1 << 17);
    const int64_t c = r + q;
    reference.push_back(static_cast<float>(r) * kUnit);
    candidate.push_back(static_cast<float>(c) * kUnit);
    row.r += r;
    row.rr += r * r;
    row.c += c;
    row.cc += c * c;
    row.rc += r * c;
    row.error += std::abs(q);
    row.squared_error += q * q;
    row.mismatches += q != 0;
    row.ulps += std::abs(ordered(candidate.back()) - ordered(reference.back()));
  }
  row.reference = Tensor::from<float>({kPeriod}, std::span<const float>(reference)).to(dtype);
  row.candidate = Tensor::from<float>({kPeriod}, std::span<const float>(candidate)).to(dtype);
  return row;
}

void expect_exact_sums(DType dtype, int64_t rows) {
  const Row row = make_row(dtype);
  const Shape shape{rows, kPeriod};
  const TensorComparison got = compare_tensors(row.reference.broadcast_to(shape), row.candidate.broadcast_to(shape),
                                               Tolerance{.absolute = 0, .relative = 0});
  const auto near = [](double a, long double b, const char* what) {
    EXPECT_LE(std::abs(a - b), kRoom * std::abs(b)) << what << " " << a << " " << static_cast<double>(b);
  };
  const auto over = [](int64_t a, int64_t b) { return static_cast<long double>(a) / static_cast<long double>(b); };
  EXPECT_EQ(got.count, rows * kPeriod);
  EXPECT_EQ(got.finite_pairs, rows * kPeriod);
  EXPECT_EQ(got.mismatches, rows * row.mismatches);
  near(got.mean_abs, over(row.error, kPeriod) * kUnit, "mean_abs");
  near(got.rmse, std::sqrt(over(row.squared_error, kPeriod)) * kUnit, "rmse");
  near(got.relative_l2, std::sqrt(over(row.squared_error, row.rr)), "relative_l2");
  near(got.cosine, static_cast<long double>(row.rc) / std::sqrt(static_cast<long double>(row.rr) * row.cc), "cosine");
  near(got.sqnr_db, 10 * std::log10(over(row.rr, row.squared_error)), "sqnr_db");
  near(got.reference.rms, std::sqrt(over(row.rr, kPeriod)) * kUnit, "rms of the reference");
  near(got.candidate.rms, std::sqrt(over(row.cc, kPeriod)) * kUnit, "rms of the candidate");
  // The sum of numbers of both signs is small beside them: its digits are measured against theirs.
  const double room = kRoom * got.reference.rms;
  EXPECT_NEAR(got.reference.mean, static_cast<double>(over(row.r, kPeriod) * kUnit), room);
  EXPECT_NEAR(got.candidate.mean, static_cast<double>(over(row.c, kPeriod) * kUnit), room);
  if (dtype == DType::kF32) {
    ASSERT_TRUE(got.ulps.has_value());
    near(got.ulps->mean, over(row.ulps, kPeriod), "mean of ulps");
  }
}

TEST(ManyElements, SumsOfABillionFloatsAreExact) {
  if (LOCKSTEP_SANITIZED) GTEST_SKIP() << "10^9 pairs take minutes under a sanitizer; shorter tensors run there";
  expect_exact_sums(DType::kF32, 1'000'000'000 / kPeriod);
}

// Pair by pair: twenty times slower.
TEST(ManyElements, SumsOfManyDoublesAreExact) {
  expect_exact_sums(DType::kF64, (LOCKSTEP_SANITIZED ? 1'000'000 : 50'000'000) / kPeriod);
}

TEST(ManyElements, SumsOfFewerFloatsAreExact) {
  expect_exact_sums(DType::kF32, 2'000'000 / kPeriod);
}

}  // namespace
}  // namespace lockstep
