#include <gtest/gtest.h>

#include <cmath>

#include "zoom/agreement.h"
#include "zoom/arithmetic.h"
#include "zoom/fed_inputs.h"

namespace lockstep::zoom {
namespace {

Numbers waves(const Shape& shape, double noise = 0) {
  Numbers out{shape, std::vector<float>(static_cast<size_t>(checked_numel(shape)))};
  for (size_t i = 0; i < out.values.size(); ++i)
    out.values[i] = static_cast<float>(std::sin(static_cast<double>(i * i % 1009)) +
                                       noise * std::cos(static_cast<double>(i * 7 % 1013)));
  return out;
}

Side side_with(const std::vector<std::pair<std::string, Numbers>>& inputs) {
  Tape tape;
  for (const auto& [name, numbers] : inputs) {
    tape.inputs.emplace_back(name, static_cast<int>(tape.values.size()));
    tape.values.push_back({Origin::kInput, name, Tensor::from<float>(numbers.shape, numbers.values), numbers.shape, -1,
                           -1, false, false});
  }
  return Side(std::move(tape));
}

TEST(FedInputs, EqualOnesAreLeftAlone) {
  const Side reference = side_with({{"x", waves({4, 6})}}), yours = side_with({{"hidden", waves({4, 6})}});
  EXPECT_TRUE(inputs_to_feed(reference, yours).empty());
}

TEST(FedInputs, NoiseGivesWayToTheReferencesNumbersInYourLayout) {
  const Numbers theirs = waves({4, 6, 8});
  for (const std::vector<int>& axes : {std::vector<int>{1, 0, 2}, {2, 0, 1}, {0, 1, 2}}) {
    const Side reference = side_with({{"other", waves({3, 3})}, {"x", theirs}}),
               yours = side_with({{"hidden", permute(waves({4, 6, 8}, 0.01), axes)}});
    const std::vector<FedInput> found = inputs_to_feed(reference, yours);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].reference, "x");
    EXPECT_EQ(found[0].why_not, "");
    EXPECT_EQ(found[0].values.values, permute(theirs, axes).values);
    EXPECT_EQ(found[0].values.shape, permute(theirs, axes).shape);
    EXPECT_NEAR(found[0].distance, 0.01, 0.005);
  }
}

TEST(FedInputs, AnErrorFromBeforeIsUndoneByName) {
  Numbers wrong = waves({4, 6});
  for (size_t i = 0; i < wrong.values.size(); i += 2) wrong.values[i] = -wrong.values[i];
  const std::vector<FedInput> found =
      inputs_to_feed(side_with({{"x", waves({4, 6})}}), side_with({{"x", wrong}, {"y", waves({5, 5})}}));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].values.values, waves({4, 6}).values);
  EXPECT_EQ(found[0].how, "by its name");
  EXPECT_NE(found[1].why_not, "");  // nothing answers y
}

// A timestep in thousandths is not an error from before: to give the reference's would break the call.
TEST(FedInputs, IdsAreRightOrWrong) {
  const auto side = [](const std::vector<int64_t>& ids) {
    const Shape shape{static_cast<int64_t>(ids.size())};
    Tape tape;
    tape.inputs.emplace_back("ids", 0);
    tape.values.push_back({Origin::kInput, "ids", Tensor::from<int64_t>(shape, ids), shape, -1, -1, false, false});
    return Side(std::move(tape));
  };
  EXPECT_TRUE(inputs_to_feed(side({15, 9000, 3}), side({15, 9000, 3})).empty());
  const std::vector<FedInput> found = inputs_to_feed(side({15, 9000, 3}), side({15, 9001, 3}));  // 1e-4 apart
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].distance, 1);
  EXPECT_EQ(found[0].values.values, (std::vector<float>{15, 9000, 3}));
}

TEST(FedInputs, AnotherUnitIsLeftAlone) {
  Numbers thousandths = waves({4, 6});
  for (float& value : thousandths.values) value *= 1000;
  const std::vector<FedInput> found =
      inputs_to_feed(side_with({{"x", waves({4, 6})}}), side_with({{"x", thousandths}}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].why_not.find("times 1000"), std::string::npos);
  EXPECT_TRUE(found[0].values.values.empty());
}

TEST(FedInputs, SlicesInAnotherOrderAreFollowed) {
  const Numbers theirs = waves({5, 16});
  Numbers mine = theirs;
  for (size_t row = 0; row < 5; ++row)
    for (size_t i = 0; i < 16; ++i) mine.values[row * 16 + i] = theirs.values[(row * 2 % 5) * 16 + i] * 1.0001F;
  const std::vector<FedInput> found = inputs_to_feed(side_with({{"x", theirs}}), side_with({{"x", mine}}));
  ASSERT_EQ(found.size(), 1U);
  ASSERT_EQ(found[0].why_not, "");
  for (size_t i = 0; i < 80; ++i) EXPECT_NEAR(found[0].values.values[i], mine.values[i], 2e-4);
  EXPECT_NE(found[0].values.values, mine.values);
}

}  // namespace
}  // namespace lockstep::zoom
