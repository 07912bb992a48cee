#include "io/tensor_source.h"

#include <sys/stat.h>

#include "io/npy.h"
#include "io/safetensors.h"
#include "io/temp_folder.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

using TensorSourceTest = TempFolder;

std::vector<std::string> names(const TensorSource& source) {
  std::vector<std::string> out;
  for (const TensorInfo& info : source.tensors()) out.push_back(info.name);
  return out;
}

Tensor value(float x) {
  return Tensor::from<float>({1}, {x});
}

TEST_F(TensorSourceTest, ALoneNpyIsNamedByItsFile) {
  write_npy(file("latents.v2.npy"), value(3));
  const auto source = open_tensors(file("latents.v2.npy"));
  EXPECT_EQ(names(*source), (std::vector<std::string>{"latents.v2"}));
  EXPECT_EQ(to_floats(source->tensor("latents.v2"))[0], 3);
  EXPECT_EQ(source->find("latents.v2")->size_bytes, 4u);
}

TEST_F(TensorSourceTest, AFolderOfFilesIsNamedByPaths) {
  fs::create_directories(file("run/sub"));
  write_npy(file("run/a.npy"), value(1));
  write_npy(file("run/sub/b.npy"), value(2));
  write_safetensors(file("run/c.safetensors"), {{"x", value(3)}, {"y", value(4)}});
  put("run/notes.txt", "not a tensor");
  for (const fs::path& path : {file("run"), file("run") / ""}) {
    const auto source = open_tensors(path);
    EXPECT_EQ(names(*source), (std::vector<std::string>{"a", "c/x", "c/y", "sub/b"}));
    EXPECT_EQ(to_floats(source->tensor("sub/b"))[0], 2);
    EXPECT_EQ(to_floats(source->tensor("c/y"))[0], 4);
  }
}

TEST_F(TensorSourceTest, AFolderOfSafetensorsIsACheckpoint) {
  write_safetensors(file("0.safetensors"), {{"x", value(3)}});
  write_safetensors(file("1.safetensors"), {{"y", value(4)}});
  EXPECT_EQ(names(*open_tensors(folder_)), (std::vector<std::string>{"x", "y"}));
  put("model.safetensors.index.json", R"({"weight_map":{"x":"0.safetensors","y":"1.safetensors"}})");
  EXPECT_EQ(names(*open_tensors(folder_)), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(names(*open_tensors(file("model.safetensors.index.json"))), (std::vector<std::string>{"x", "y"}));
}

TEST_F(TensorSourceTest, AModelIsNamedByItsComponents) {
  for (const char* component : {"transformer", "vae"}) {
    fs::create_directories(file(component));
    write_safetensors(file(component) / "model.safetensors", {{"x", value(3)}});
  }
  put("vae/tokenizer.bin", "not torch");
  const auto source = open_tensors(folder_);
  EXPECT_EQ(names(*source), (std::vector<std::string>{"transformer.x", "vae.x"}));
  EXPECT_EQ(to_floats(source->tensor("vae.x"))[0], 3);
}

TEST_F(TensorSourceTest, WhatIsNotThereIsSaidSo) {
  EXPECT_EQ(error_of([&] { open_tensors(file("none.npy")); }).substr(0, 9), "not_found");
  EXPECT_NE(error_of([&] { open_tensors(folder_); }).find("holds no tensor files"), std::string::npos);
  write_npy(file("latents.npy"), value(1));
  EXPECT_NE(error_of([&] { open_tensors(folder_)->tensor("latent"); }).find("try latents"), std::string::npos);
  write_npy(file("latents.pt"), value(1));  // the content decides what it is, and then two share a name
  EXPECT_NE(error_of([&] { open_tensors(folder_); }).find("two tensors"), std::string::npos);
}

// In a folder that somebody else has filled: nothing is waited for, no circle is walked, the culprit is named.
TEST_F(TensorSourceTest, SpecialFilesInAFolderAreRefusedByName) {
  write_npy(file("a.npy"), value(1));
  fs::create_directory_symlink(folder_, file("circle"));
  fs::create_directory(file("folder.npy"));
  EXPECT_EQ(names(*open_tensors(folder_)), (std::vector<std::string>{"a"}));
  const auto refused = [&](const std::string& name) {
    const std::string error = error_of([&] { open_tensors(folder_); });
    EXPECT_NE(error.find(file(name).string()), std::string::npos) << error;
    fs::remove(file(name));
    return error;
  };
  ASSERT_EQ(::mkfifo(file("pipe.npy").c_str(), 0600), 0);
  EXPECT_NE(refused("pipe.npy").find("a special file"), std::string::npos);
  ASSERT_EQ(::mkfifo(file("pipe.bin").c_str(), 0600), 0);
  EXPECT_NE(refused("pipe.bin").find("a special file"), std::string::npos);
  fs::create_symlink("/dev/zero", file("zero.safetensors"));
  EXPECT_NE(refused("zero.safetensors").find("a special file"), std::string::npos);
  fs::create_symlink("loop.npz", file("loop.npz"));
  EXPECT_EQ(refused("loop.npz").substr(0, 9), "bad_input");
  fs::create_symlink("nowhere", file("gone.pt"));
  EXPECT_EQ(refused("gone.pt").substr(0, 9), "not_found");
  EXPECT_EQ(names(*open_tensors(folder_)), (std::vector<std::string>{"a"}));
}

}  // namespace
}  // namespace lockstep
