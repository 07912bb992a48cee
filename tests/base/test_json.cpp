#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json_tree.h"

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

// An ordered map that counts how many entries its look-ups walk past.
uint64_t entries_walked = 0;
template <class Key, class Value, class Ignored = std::less<Key>,
          class Allocator = std::allocator<std::pair<const Key, Value>>>
struct CountingMap : nlohmann::ordered_map<Key, Value, Ignored, Allocator> {
  using Base = nlohmann::ordered_map<Key, Value, Ignored, Allocator>;
  using Base::Base;
  std::pair<typename Base::iterator, bool> emplace(const Key& key, Value&& value) {
    entries_walked += this->size();
    return Base::emplace(key, std::move(value));
  }
  Value& operator[](const Key& key) { return emplace(key, Value{}).first->second; }
};
using CountingJson = nlohmann::basic_json<CountingMap>;

std::string object_of_keys(int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":" + std::to_string(i);
  return text + "}";
}

TEST(Json, AHostileNumberOfKeysIsReadInLinearTime) {
  constexpr int kKeys = 200'000;
  const std::string text = object_of_keys(kKeys);
  entries_walked = 0;
  JsonTreeBuilder<CountingJson> builder("x", 4);
  ASSERT_TRUE(CountingJson::sax_parse(text, &builder));
  const CountingJson tree = builder.take();
  EXPECT_EQ(tree.size(), static_cast<size_t>(kKeys));
  EXPECT_LE(entries_walked, static_cast<uint64_t>(kKeys));
  // The count does see what nlohmann's own builder does.
  entries_walked = 0;
  EXPECT_EQ(CountingJson::parse(object_of_keys(1000)).size(), 1000u);
  EXPECT_GE(entries_walked, 1000u * 999 / 2);
}

TEST(Json, KeysKeepTheirOrderAndValuesTheirPlace) {
  const std::string text = R"({"z":{"b":[1,{"c":null},[]],"a":-1},"a":[{"x":1.5},{"x":"y"}],"":true,"m":{}})";
  EXPECT_EQ(parse_json(text, "x").dump(), text);
  for (const char* scalar : {"1", "-1", "1.5", "\"x\"", "null", "true", "[]", "{}"})
    EXPECT_EQ(parse_json(scalar, "x").dump(), scalar);
  try {
    parse_json(R"({"a":1,"b":{"first":1,"second":2,"first":3}})", "some.json");
    FAIL() << "a key twice was read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("some.json holds the key \"first\" twice"), std::string::npos)
        << error.what();
  }
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
