#include "io/pickle.h"

#include "io/temp_folder.h"

namespace lockstep {
namespace {

PickleDocument parse_document(const std::string& bytes) {
  return parse_pickle(std::as_bytes(std::span(bytes)), "x");
}

std::string rejection(const std::string& bytes) {
  return error_of([&] {
    const PickleDocument document = parse_document(bytes);
    tensors_in(document.root, "x");
  });
}

TEST(Pickle, ScalarsAndContainers) {
  const PickleDocument document =
      parse_document(std::string("\x80\x02}(X\x01\0\0\0aK\x05X\x01\0\0\0b]N\x88\x86"
                                 "au.",
                                 25));
  const auto* dict = std::get_if<PickleDict>(&document.root->value);
  ASSERT_TRUE(dict);
  ASSERT_EQ(dict->items.size(), 2u);
  EXPECT_EQ(std::get<int64_t>(dict->items[0].second->value), 5);
  const auto& list = std::get<PickleList>(dict->items[1].second->value);
  EXPECT_EQ(std::get<PickleList>(list.items.at(0)->value).items.size(), 2u);
  EXPECT_EQ(document.consumed_bytes, 25u);
}

TEST(Pickle, IntegersOfEveryWidth) {
  const auto value = [](const std::string& bytes) { return std::get<int64_t>(parse_document(bytes).root->value); };
  EXPECT_EQ(value(std::string("K\xff.", 3)), 255);
  EXPECT_EQ(value(std::string("M\x01\x02.", 4)), 513);
  EXPECT_EQ(value(std::string("J\xfe\xff\xff\xff.", 6)), -2);
  EXPECT_EQ(value(std::string("\x8a\x00.", 3)), 0);
  EXPECT_EQ(value(std::string("\x8a\x01\xff.", 4)), -1);
  EXPECT_EQ(value(std::string("\x8a\x02\xff\x00.", 5)), 255);
  EXPECT_EQ(value(std::string("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.", 11)), INT64_MIN);
  EXPECT_TRUE(std::holds_alternative<PickleValue::LongInteger>(
      parse_document(std::string("\x8a\x09") + std::string(9, '\1') + ".").root->value));
}

TEST(Pickle, WhatCouldRunIsRefusedByName) {
  EXPECT_NE(rejection("\x80\x02"
                      "cos\nsystem\nX\x01\0\0\0w\x85R.")
                .find("os.system"),
            std::string::npos);
  EXPECT_NE(rejection("ctorch._utils\n_rebuild_sparse_tensor\n.").find("_rebuild_sparse_tensor"), std::string::npos);
  EXPECT_NE(rejection("(ios\nsystem\n.").find("INST"), std::string::npos);
  EXPECT_NE(rejection("\x82\x01.").find("EXT1"), std::string::npos);
  EXPECT_NE(rejection(")\x81.").find("NEWOBJ"), std::string::npos);
  EXPECT_NE(rejection("\x8c\x01"
                      "a.")
                .find("SHORT_BINUNICODE"),
            std::string::npos);
  EXPECT_NE(rejection("}}b.").find("BUILD"), std::string::npos);
}

TEST(Pickle, DepthCirclesAndBombsAreBounded) {
  // A list in itself, a million tuples in each other, and thirty levels of ten references each: 10^30 values.
  EXPECT_NE(rejection(std::string("]q\0h\0a.", 7)).find("nested"), std::string::npos);
  EXPECT_NE(rejection(")" + std::string(1'000'000, '\x85') + ".").find("nested"), std::string::npos);
  std::string bomb("K\1q\0", 4);
  for (char level = 1; level < 30; ++level) {
    bomb += '(';
    for (int i = 0; i < 10; ++i) bomb += std::string("h") + static_cast<char>(level - 1);
    bomb += std::string("tq") + level;
  }
  EXPECT_NE(rejection(bomb + ".").find("too many values"), std::string::npos);
  std::string many(5'000'000, 'N');
  many += '.';
  EXPECT_NE(rejection(many).find("too many values"), std::string::npos);
  EXPECT_NE(rejection(std::string("X\xff\xff\xff\x7f") + "a.").find("cut short"), std::string::npos);
}

TEST(Pickle, TheStackIsNeverReadBelowItsMark) {
  for (const std::string bytes : {".",  "0.", "K\1(.", "(K\1a.", "]a.", "}s.",      "(K\1s.", "\x85.", "K\1\x86.", "t.",
                                  "e.", "u.", "R.",    "b.",     "Q.",  "K\1K\2R.", "h\7.",   "K",     "X\1",      ""})
    EXPECT_NE(rejection(bytes), "") << bytes;
}

}  // namespace
}  // namespace lockstep
