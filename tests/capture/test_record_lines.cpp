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

TEST(RecordLine, IsNoLongerThanTheRoomItGets) {
  const std::string hostile = std::string(300, '\x01') + "\xff\"\\" + std::string(300, '"');
  for (const std::string& name : {std::string("block.0.attn"), hostile}) {
    Record record;
    record.key = {name, 2147483647, 2147483647, {{name, name}, {"pass", "cond"}}};
    record.dtype = DType::kBF16;
    record.dtype_text = name;
    record.shape = Shape(8, int64_t{1} << 62);
    record.seq = record.same_as = int64_t{1} << 62;
    record.secs = 1e9;
    record.checksum = record.file = record.where.file = record.where.function = name;
    EXPECT_LE(line_from_record(record).size(), most_line_bytes(record));
    EXPECT_GT(2 * line_from_record(record).size() + 4096, most_line_bytes(record));
  }
}

TEST(RecordLine, PlainAndEscapedNamesComeBack) {
  for (const std::string& name : {std::string("a.b/c~"), std::string("a\"b"), std::string("a\\b"), std::string("a\x7f"),
                                  std::string("a\nb"), std::string("\xc3\xa9"), std::string()}) {
    Record record;
    record.key.name = name;
    record.dtype_text = "f32";
    const auto read = record_from_line(line_from_record(record));
    ASSERT_TRUE(read) << name;
    EXPECT_EQ(read->key.name, name);
  }
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
