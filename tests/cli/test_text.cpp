// Numbers, tables and tensors as text.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/number_text.h"
#include "cli/table.h"
#include "cli/tensor_text.h"
#include "cli/weights_tree.h"

namespace lockstep {
namespace {

TEST(NumberText, BytesCountsAndShares) {
  EXPECT_EQ(text_from_bytes(0), "0 B");
  EXPECT_EQ(text_from_bytes(999), "999 B");
  EXPECT_EQ(text_from_bytes(1000), "1.00 kB");
  EXPECT_EQ(text_from_bytes(999'950'000), "1.00 GB");
  EXPECT_EQ(text_from_bytes(40'900'000'000), "40.9 GB");
  EXPECT_EQ(text_from_bytes(std::numeric_limits<uint64_t>::max()), "18.4 EB");
  EXPECT_EQ(text_from_count(0), "0");
  EXPECT_EQ(text_from_count(-1234567), "-1,234,567");
  EXPECT_EQ(text_from_count(999), "999");
  EXPECT_EQ(text_from_share(0), "0 %");
  EXPECT_EQ(text_from_share(1e-9), "under 0.001 %");
  EXPECT_EQ(text_from_share(1 - 1e-9), "over 99.999 %") << "one difference in a billion is not 100 %";
  EXPECT_EQ(text_from_share(1), "100 %");
  EXPECT_EQ(text_from_number(std::numeric_limits<double>::quiet_NaN()), "NaN");
}

TEST(Table, AlignsAndMakesControlCharactersVisible) {
  Table table({{"name"}, {"size", Table::Align::kRight}});
  table.add({"a\x1b[31m", "1"});
  table.add({"größe", "1000"});
  EXPECT_EQ(table.text(Terminal(GlobalOptions{})), "name       size\na\\x1b[31m     1\ngröße      1000\n");
}

TEST(Table, ShortensInTheMiddleByCharacters) {
  EXPECT_EQ(shortened("transformer", 20), "transformer");
  EXPECT_EQ(shortened("abcdefghij", 5), "ab…ij");
  EXPECT_EQ(shortened("ääääääääää", 5), "ää…ää");
}

TEST(TensorText, SmallTensorsAreWhole) {
  const TensorTextOptions options;
  EXPECT_EQ(text_from_tensor(Tensor::from<float>({2, 2}, {1, -2.5, 3, 4}), options), "[[   1 -2.5]\n [   3    4]]\n");
  EXPECT_EQ(text_from_tensor(Tensor::from<int64_t>({}, {std::numeric_limits<int64_t>::min()}), options),
            "-9223372036854775808\n");
  EXPECT_EQ(text_from_tensor(Tensor::from<bool>({2}, {true, false}), options), "[ True False]\n");
  EXPECT_EQ(text_from_tensor(Tensor::zeros(DType::kF32, {0, 3}), options), "[] of shape [0, 3]\n");
}

TEST(TensorText, ReadsStridedViewsInTheirOwnOrder) {
  const Tensor tensor = Tensor::from<int32_t>({2, 3}, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(text_from_tensor(tensor.transpose(0, 1), {}), "[[0 3]\n [1 4]\n [2 5]]\n");
}

TEST(TensorText, NeverMoreThanAskedFor) {
  for (const Shape& shape : {Shape{100000}, Shape{64, 3000}, Shape{3, 5, 70, 70}, Shape{9, 9, 9, 9, 9, 9}}) {
    const std::string text = text_from_tensor(Tensor::zeros(DType::kF32, shape), {.rows = 20, .columns = 80}).string();
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40) << to_string(shape);
    EXPECT_NE(text.find("..."), std::string::npos);
  }
}

std::vector<TensorInfo> named_tensors(const std::vector<std::string>& names) {
  std::vector<TensorInfo> tensors;
  for (const std::string& name : names) tensors.push_back({.name = name, .shape = {2}, .size_bytes = 8});
  return tensors;
}

std::vector<const TensorInfo*> pointers(const std::vector<TensorInfo>& tensors) {
  std::vector<const TensorInfo*> all;
  for (const TensorInfo& info : tensors) all.push_back(&info);
  return all;
}

TEST(WeightsTree, ChildrenAreFoundAmongFewAndMany) {
  std::vector<std::string> names;
  for (int round = 0; round < 2; ++round)  // the second round finds every parent again, far from its neighbours
    for (int i = 0; i < 30; ++i) names.push_back("block." + std::to_string(i) + (round ? ".bias" : ".weight"));
  const std::vector<TensorInfo> tensors = named_tensors(names);
  const WeightsTree tree(pointers(tensors));
  const Json json = tree.json(9);
  EXPECT_EQ(json["tensors"], 60);
  const Json& blocks = json["children"]["block"]["children"];
  ASSERT_EQ(blocks.size(), 30u);
  EXPECT_EQ(blocks.begin().key(), "0");
  for (const auto& [name, block] : blocks.items()) EXPECT_EQ(block["children"].size(), 2u) << name;
  EXPECT_NE(tree.text(Terminal(GlobalOptions{}), 9).string().find("0..29 x 30"), std::string::npos);
}

TEST(WeightsTree, ANameOfAMillionDotsIsNotAMillionLevels) {
  const std::vector<TensorInfo> tensors = named_tensors({std::string(1'000'000, '.')});
  const WeightsTree tree(pointers(tensors));
  EXPECT_EQ(tree.json(1'000'000)["tensors"], 1);
  EXPECT_LT(std::ranges::count(tree.text(Terminal(GlobalOptions{}), 1'000'000).string(), '\n'), 100);
}

}  // namespace
}  // namespace lockstep
