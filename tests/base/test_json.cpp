#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(Json, RefusesWhatStrictJsonForbids) {
  EXPECT_EQ(parse_json(R"({"a":[1,2.5,"x",null,true]})", "x")["a"].size(), 5u);
  for (const char* bad : {"", "{", "{\"a\":1,}", "[1,]", "nan", "NaN", "{'a':1}", "\"\xff\"", "1 2",
                          "{\"a\":1,\"a\":2}", "{\"o\":{\"a\":1,\"a\":2}}", "\"\\ud800\"", "01", "// c\n1"})
    EXPECT_THROW(parse_json(bad, "x"), Error) << bad;
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_NO_THROW(parse_json(nested(kMaxJsonDepth - 1), "x"));
  EXPECT_THROW(parse_json(nested(kMaxJsonDepth + 2), "x"), Error);
  EXPECT_THROW(parse_json(nested(1'000'000), "x"), Error);
}

TEST(Json, NumbersThatJsonCannotSayTravelAsText) {
  for (const double value :
       {0.0, -1.5, 1e300, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()})
    EXPECT_EQ(number_from_json(parse_json(json_number(value).dump(), "x")), value);
  EXPECT_TRUE(std::isnan(number_from_json(json_number(std::nan("")))));
  EXPECT_THROW(number_from_json("nan"), Error);
  EXPECT_THROW(number_from_json(true), Error);
}

}  // namespace
}  // namespace lockstep
