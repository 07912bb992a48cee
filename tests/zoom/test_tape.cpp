#include <gtest/gtest.h>

#include "base/error.h"
#include "base/new_folder.h"
#include "zoom/tape.h"

namespace lockstep::zoom {
namespace {

class TapeFile : public testing::Test {
 protected:
  TapeFile() { write_atomically(folder_ / "operations.bin", std::string(64, '\0')); }

  std::vector<Tape> read(const std::string& lines) const {
    write_atomically(folder_ / "operations.jsonl", lines);
    return read_tapes(folder_);
  }

  void expect_refused(const std::string& line) const {
    try {
      read(kBegin + line + "\n");
      ADD_FAILURE() << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt) << line;
    }
  }

  const std::string kBegin = R"({"call":"block","step":2,"hit":1,"tags":{"pass":"cond"},"framework":"torch"})"
                             "\n";
  const TemporaryFolder made_{"zoom-", "test"};
  const fs::path& folder_ = made_.path();
};

TEST_F(TapeFile, SumsOfAValueAreTakenAsTheProgramMadeThem) {
  const std::string value =
      R"({"value":0,"kind":"input","dtype":"float32","shape":[2],"offset":0,"sums":[1,0,2.5,3.5,4.25,false,true]})"
      "\n";
  const auto tapes = read(kBegin + value + R"({"end":true,"outputs":[["",0]]})" + "\n");
  ASSERT_EQ(tapes.size(), 1U);
  const auto& totals = tapes[0].values[0].totals;
  ASSERT_TRUE(totals);
  EXPECT_EQ(totals->count, 2);
  EXPECT_EQ(totals->infinite, 1);
  EXPECT_EQ(totals->squares, 4.25);
  EXPECT_TRUE(totals->binary && !totals->uniform);
}

TEST_F(TapeFile, ValuesStepsAndOutputsAreRead) {
  const auto tapes =
      read(kBegin +
           R"({"value":7,"kind":"input","name":"x","dtype":"float32","shape":[2,2],"strides":[1,2],"offset":16})"
           "\n"
           R"({"value":9,"kind":"result","dtype":"float32","shape":[4],"offset":0})"
           "\n"
           R"({"op":"reshape","inputs":[["input",7]],"arguments":{"shape":[4]},"outputs":[9],"where":[["m.py",3,"f"]]})"
           "\n"
           R"({"end":true,"outputs":[["",9]],"truncated":false})"
           "\n");
  ASSERT_EQ(tapes.size(), 1U);
  EXPECT_EQ(tapes[0].call, "block");
  EXPECT_EQ(tapes[0].step, 2);
  EXPECT_EQ(tapes[0].pass, "cond");
  ASSERT_EQ(tapes[0].steps.size(), 1U);
  EXPECT_EQ(tapes[0].steps[0].where[0].line, 3);
  EXPECT_EQ(tapes[0].values[0].tensor.strides(), (Strides{1, 2}));
  EXPECT_EQ(tapes[0].values[1].step, 0);
}

TEST_F(TapeFile, ATornLineAndACallWithoutItsEndAreLeftOut) {
  EXPECT_TRUE(read(kBegin).empty());
  EXPECT_EQ(read(kBegin + "{\"end\":true}\n{\"call\":\"b").size(), 1U);
}

TEST_F(TapeFile, HostileLinesAreRefused) {
  expect_refused(R"({"value":1,"kind":"result","dtype":"float32","shape":[32],"offset":0})");
  expect_refused(R"({"value":1,"kind":"result","dtype":"float32","shape":[4],"offset":-4})");
  expect_refused(
      R"({"value":1,"kind":"result","dtype":"float32","shape":[2,2],"strides":[9000000000000000000,1],"offset":0})");
  expect_refused(R"({"value":1,"kind":"result","dtype":"float32","shape":[2],"strides":[-1],"offset":0})");
  expect_refused(R"({"value":1,"kind":"result","dtype":"float32","shape":[2],"strides":[1,1],"offset":0})");
  expect_refused(R"({"op":"add","inputs":[["input",5]],"outputs":[]})");
  expect_refused(R"({"op":"add","inputs":[[1,2,3]],"outputs":[]})");
  expect_refused(R"([1])");
}

TEST_F(TapeFile, ARunWithoutOperationsSaysWhatToDo) {
  try {
    read_tapes(folder_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_NE(std::string(error.what()).find("--operations"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::zoom
