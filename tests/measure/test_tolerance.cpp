#include "measure/tolerance.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "measure/error_histogram.h"

namespace lockstep {
namespace {

TEST(Tolerance, CoarserDTypeDecides) {
  EXPECT_EQ(default_tolerance(DType::kF32, DType::kBF16).name, "bf16");
  EXPECT_EQ(default_tolerance(DType::kBF16, DType::kF32).relative, 1.6e-2);
  EXPECT_EQ(default_tolerance(DType::kF32, DType::kF32).absolute, 1e-5);
  EXPECT_EQ(default_tolerance(DType::kI64, DType::kI64).absolute, 0);
  EXPECT_EQ(default_tolerance(DType::kBool, DType::kF32).name, "f32");
}

TEST(Tolerance, Bands) {
  EXPECT_EQ(band_of(0).name, "identical");
  EXPECT_EQ(band_of(1e-6).name, "identical");
  EXPECT_EQ(band_of(5e-5).name, "high");
  EXPECT_EQ(band_of(1e-3).name, "acceptable");
  EXPECT_EQ(band_of(5e-3).name, "suspect");
  EXPECT_EQ(band_of(0.02).name, "bug");
  EXPECT_EQ(band_of(std::numeric_limits<double>::quiet_NaN()).name, "bug");
}

TEST(Tolerance, Parses) {
  EXPECT_FALSE(parse_tolerance("default").has_value());
  EXPECT_EQ(parse_tolerance("high")->absolute, 1e-4);
  EXPECT_EQ(parse_tolerance("1e-5,2e-3")->relative, 2e-3);
  EXPECT_EQ(parse_tolerance("0.5")->absolute, 0.5);
  for (const char* bad : {"", "hgh", "-1", "nan", "inf", "1e-5,", "1e-5,x", "bug", "1,2,3"})
    EXPECT_THROW(parse_tolerance(bad), Error) << bad;
  try {
    parse_tolerance("acceptible");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("try --tolerance acceptable"), std::string::npos) << error.what();
  }
}

TEST(ErrorHistogram, RowsCoverEveryError) {
  ErrorHistogram histogram;
  for (const double error : {0.0, 1e-60, 1e-7, 1.5e-7, 1e-3, 2.0, 1e300}) histogram.add(error);
  const auto rows = histogram.rows(8);
  EXPECT_LE(rows.size(), 8u);
  int64_t total = 0;
  for (const auto& row : rows) total += row.count;
  EXPECT_EQ(total, 7);
  EXPECT_EQ(rows[0].count, 2) << "what vanishes in float counts as equal";
  EXPECT_EQ(ErrorHistogram().quantile(0.5), 0);
  EXPECT_TRUE(ErrorHistogram().rows(8).empty());
}

TEST(ErrorHistogram, OneValueHasOneQuantile) {
  ErrorHistogram histogram;
  for (int i = 0; i < 1000; ++i) histogram.add(3e-4);
  EXPECT_NEAR(histogram.quantile(0.001), 3e-4, 3e-4 / 8);
  EXPECT_NEAR(histogram.quantile(1), 3e-4, 3e-4 / 8);
}

}  // namespace
}  // namespace lockstep
