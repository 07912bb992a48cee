#include "base/decimal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>

namespace lockstep {
namespace {

struct Read {
  double value = -7;  // what stays when nothing is read
  long length = 0;
  std::errc error{};
};

Read read(std::string_view text) {
  Read result;
  const auto [end, error] = read_decimal(text.data(), text.data() + text.size(), result.value);
  result.length = end - text.data();
  result.error = error;
  return result;
}

TEST(Decimal, ReadsWhatFromCharsReads) {
  for (const std::string_view text : {"0",
                                      "-0",
                                      "1",
                                      "12.5",
                                      ".5",
                                      "5.",
                                      "-3.25e-7",
                                      "1E+3",
                                      "1e",
                                      "1e+",
                                      "7days",
                                      "1.5 GB",
                                      "2e3m",
                                      "0x10",
                                      "1,5",
                                      "inf",
                                      "-inf",
                                      "nan",
                                      "infinity",
                                      "infinite",
                                      "4.9e-324",
                                      "1.7976931348623157e308",
                                      "0.1",
                                      "0.30000000000000004",
                                      "9007199254740993",
                                      "1e22",
                                      "1e23",
                                      "8.5f",
                                      "12in",
                                      "3nan",
                                      "1e400",
                                      "-1e400",
                                      "1e-400",
                                      "0e-400",
                                      "",
                                      "+1",
                                      " 1",
                                      "-",
                                      ".",
                                      "e5",
                                      "--1",
                                      "-+1",
                                      "d",
                                      "(1)"}) {
    Read expected;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), expected.value);
    const Read got = read(text);
    EXPECT_EQ(got.error, error) << text;
    EXPECT_EQ(got.length, end - text.data()) << text;
    if (std::isnan(expected.value)) {
      EXPECT_TRUE(std::isnan(got.value)) << text;
    } else {
      EXPECT_EQ(got.value, expected.value) << text;
      EXPECT_EQ(std::signbit(got.value), std::signbit(expected.value)) << text;
    }
  }
}

TEST(Decimal, StopsWhereTheTextEnds) {
  const std::string_view all = "12.345";
  EXPECT_EQ(read(all.substr(0, 4)).value, 12.3);
  EXPECT_EQ(read(all.substr(0, 4)).length, 4);
}

}  // namespace
}  // namespace lockstep
