#include "base/new_folder.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(NewFolder, HasANameOfItsOwnAndIsTheUsersAlone) {
  const TemporaryFolder scratch("lockstep-base-", "test");
  const fs::path parent = scratch.path() / "not" / "there yet";
  const fs::path one = make_new_folder(parent, "one-", "test"), two = make_new_folder(parent, "one-", "test");
  EXPECT_NE(one, two);
  for (const fs::path& made : {one, two}) {
    EXPECT_EQ(made.parent_path(), parent);
    EXPECT_EQ(made.filename().string().substr(0, 4), "one-");
    EXPECT_EQ(made.filename().string().size(), 4 + kRandomLetters);
    EXPECT_EQ(fs::status(made).permissions(), fs::perms::owner_all);
  }
}

TEST(NewFolder, IsGoneWithAllItHolds) {
  fs::path path;
  {
    const TemporaryFolder scratch("lockstep-base-", "test");
    path = scratch.path();
    EXPECT_TRUE(path.is_absolute());
    fs::create_directories(path / "a" / "b");
    std::ofstream(path / "a" / "b" / "file") << "x";
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(NewFolder, SaysWhereItCannotBeMade) {
  const TemporaryFolder scratch("lockstep-base-", "test");
  std::ofstream(scratch.path() / "file") << "x";
  try {
    make_new_folder(scratch.path() / "file", "one-", "prune");
    FAIL() << "a folder in a file";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kIo);
    const std::string said = error.what();
    EXPECT_EQ(said.find("[prune] no new folder can be made in " + (scratch.path() / "file").string()), 0u) << said;
  }
}

}  // namespace
}  // namespace lockstep
