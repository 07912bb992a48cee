#include "io/checkpoint.h"

#include <sys/stat.h>

#include "io/temp_folder.h"

namespace lockstep {
namespace {

using CheckpointTest = TempFolder;

NamedTensors one(const std::string& name, float value) {
  return {{name, Tensor::from<float>({1}, {value})}};
}

TEST_F(CheckpointTest, OneFileAFolderAndAnIndexAreTheSameThing) {
  write_safetensors(file("m-1.safetensors"), one("a", 1));
  write_safetensors(file("m-2.safetensors"), one("b", 2));
  EXPECT_EQ(Checkpoint::open(file("m-2.safetensors")).tensor("b").data<float>()[0], 2);
  EXPECT_EQ(Checkpoint::open(folder_).tensors().size(), 2u);
  put("model.safetensors.index.json", R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  for (const fs::path& path : {folder_, file("model.safetensors.index.json")}) {
    const Checkpoint checkpoint = Checkpoint::open(path);
    EXPECT_EQ(checkpoint.tensor("a").data<float>()[0], 1);
    EXPECT_EQ(checkpoint.tensor("b").data<float>()[0], 2);
    EXPECT_EQ(checkpoint.find("c"), nullptr);
  }
}

TEST_F(CheckpointTest, ANameThatIsNotThereIsAnsweredWithTheNearest) {
  write_safetensors(file("m.safetensors"), one("blocks.0.attn.to_q.weight", 1));
  const Checkpoint checkpoint = Checkpoint::open(folder_);
  const std::string error = error_of([&] { checkpoint.tensor("blocks.0.attn.to_k.weight"); });
  EXPECT_NE(error.find("not_found"), std::string::npos);
  EXPECT_NE(error.find("try blocks.0.attn.to_q.weight"), std::string::npos) << error;
}

TEST_F(CheckpointTest, TheIndexMayNotLeaveTheFolderNorLie) {
  fs::create_directories(file("in"));
  write_safetensors(file("in/m.safetensors"), {});
  const auto opening = [&](const std::string& weight_map) {
    put("in/model.safetensors.index.json", R"({"weight_map":)" + weight_map + "}");
    return error_of([&] { Checkpoint::open(file("in")); });
  };
  write_safetensors(file("out.safetensors"), one("a", 1));
  for (const std::string shard : {"../out.safetensors", "/etc/passwd", "..", "a/../../b", "", "x\\\\y", "n\\u0000"})
    EXPECT_NE(opening("{\"a\":\"" + shard + "\"}").find("outside the folder"), std::string::npos) << shard;
  EXPECT_NE(opening(R"({"a":"m.safetensors"})").find("promises"), std::string::npos);
  EXPECT_NE(opening(R"({"a":"none.safetensors"})").find("not_found"), std::string::npos);
  EXPECT_NE(opening(R"({"a":3})").find("not a string"), std::string::npos);
  fs::create_directory(file("in/folder"));
  EXPECT_NE(opening(R"({"a":"folder"})").find("a folder"), std::string::npos);
  ASSERT_EQ(::mkfifo(file("in/pipe").c_str(), 0600), 0);
  EXPECT_NE(opening(R"({"a":"pipe"})").find("a special file"), std::string::npos);
  fs::create_symlink("loop", file("in/loop"));
  EXPECT_EQ(opening(R"({"a":"loop"})").substr(0, 9), "bad_input");
  EXPECT_NE(opening("[]").find("weight_map"), std::string::npos);
}

TEST_F(CheckpointTest, ANameInTwoFilesIsRefusedUnlessTheIndexChooses) {
  write_safetensors(file("0.safetensors"), one("a", 1));
  write_safetensors(file("1.safetensors"), one("a", 2));
  EXPECT_NE(error_of([&] { Checkpoint::open(folder_); }).find("two files"), std::string::npos);
  put("model.safetensors.index.json", R"({"weight_map":{"a":"1.safetensors"}})");
  EXPECT_EQ(Checkpoint::open(folder_).tensor("a").data<float>()[0], 2);
}

}  // namespace
}  // namespace lockstep
