// Lines of records.jsonl that a fuzzer found: what was read is written and read again the same.
#include "capture/record.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

TEST(RecordLine, NegativeZeroKeepsItsSign) {
  Record record;
  record.key.name = "x";
  record.dtype_text = "f32";
  record.shape = {2};
  record.preview = {-0.0, 0.0};
  record.stats = Statistics{};
  record.stats->count = 2;
  record.stats->min = -0.0;
  const std::string line = line_from_record(record);
  const auto again = record_from_line(line);
  ASSERT_TRUE(again);
  EXPECT_TRUE(std::signbit(again->preview[0])) << line;
  EXPECT_FALSE(std::signbit(again->preview[1]));
  EXPECT_TRUE(std::signbit(again->stats->min));
  EXPECT_EQ(line_from_record(*again), line);
}

TEST(RecordLine, HostileCountsAndTimesStayInBounds) {
  const auto record = record_from_line(
      R"({"name":"x","shape":[2],"secs":"NaN","stats":{"nan":-9223372036854775808,"inf":9223372036854775807,"zero":-1}})");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->secs, 0);
  EXPECT_EQ(record->stats->nan, 0);
  EXPECT_EQ(record->stats->inf, 2);
  EXPECT_EQ(record->stats->zero, 0);
  EXPECT_TRUE(record_from_line(line_from_record(*record)));
}

}  // namespace
}  // namespace lockstep
