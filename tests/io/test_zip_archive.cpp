#include "io/zip_archive.h"

#include "io/npz.h"
#include "io/temp_folder.h"
#include "io/torch_file.h"
#include "io/zip_writer.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

using ZipTest = TempFolder;

std::string opening(const std::string& bytes) {
  return error_of([&] { ZipArchive(std::as_bytes(std::span(bytes)), "x", nullptr); });
}

TEST_F(ZipTest, WrittenEntriesAreReadBackAsViewsAndAligned) {
  ZipWriter writer(file("x.zip"));
  writer.add("a", "hello");
  writer.add("dir/b", std::string(1000, 'b'), 64);
  writer.add("empty", "");
  writer.commit();
  const std::string bytes = bytes_of(file("x.zip"));
  const ZipArchive archive(std::as_bytes(std::span(bytes)), "x", nullptr);
  ASSERT_EQ(archive.entries().size(), 3u);
  EXPECT_EQ(archive.find("dir/b")->data_offset % 64, 0u);
  const OwnedBytes content = archive.read(*archive.find("a"), true);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size()), "hello");
  EXPECT_GE(reinterpret_cast<const char*>(content.bytes.data()), bytes.data());
  EXPECT_LT(reinterpret_cast<const char*>(content.bytes.data()), bytes.data() + bytes.size());
  EXPECT_EQ(archive.find("c"), nullptr);
}

TEST_F(ZipTest, NamesAreUniqueAndAnUnfinishedArchiveLeavesNothing) {
  {
    ZipWriter writer(file("x.zip"));
    writer.add("a", "1");
    EXPECT_NE(error_of([&] { writer.add("a", "2"); }), "");
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(ZipTest, DamageIsFoundWhereverItIs) {
  ZipWriter writer(file("x.zip"));
  writer.add("a", "hello");
  writer.add("b", "world");
  writer.commit();
  const std::string good = bytes_of(file("x.zip"));
  EXPECT_EQ(opening(good), "");
  for (size_t size = 0; size < good.size(); ++size) EXPECT_NE(opening(good.substr(0, size)), "") << size;
  const auto changed = [&](size_t at, char value) {
    std::string bytes = good;
    bytes[at] = value;
    return opening(bytes);
  };
  const size_t second = good.rfind("PK\1\2");
  EXPECT_NE(changed(second + 42, 0).find("names something other"), std::string::npos);  // b's offset becomes a's
  EXPECT_NE(changed(second + 8, 1).find("encrypted"), std::string::npos);
  EXPECT_NE(changed(second + 10, 12).find("another compression"), std::string::npos);
  EXPECT_NE(changed(second + 24, 6).find("two sizes"), std::string::npos);
  EXPECT_NE(changed(second + 46, 'a').find("twice"), std::string::npos);
  // Two directory entries that share their bytes: what makes a few kilobytes unfold to petabytes.
  std::string overlap = good;
  overlap[good.find("PK\1\2") + 20] = overlap[good.find("PK\1\2") + 24] = 20;
  EXPECT_NE(opening(overlap).find("overlap"), std::string::npos) << opening(overlap);
}

TEST_F(ZipTest, AStoredEntryIsCheckedAgainstItsSum) {
  write_npz(file("x.npz"), {{"a", Tensor::from<float>({2}, {1, 2})}});
  std::string bytes = bytes_of(file("x.npz"));
  bytes[bytes.find("\x80\x3f")] ^= 1;
  const auto npz = NpzFile::open(put("y.npz", bytes));
  EXPECT_NE(error_of([&] { npz->tensor("a"); }).find("checksum"), std::string::npos);
  EXPECT_EQ(to_floats(NpzFile::open(file("x.npz"))->tensor("a")), (std::vector<float>{1, 2}));
  EXPECT_NE(error_of([&] { npz->tensor("b"); }).find("not_found"), std::string::npos);
}

TEST_F(ZipTest, TorchFilesComeBackAsTheyWere) {
  const Tensor turned = Tensor::from<float>({2, 3}, {1, 2, 3, 4, 5, 6}).transpose(0, 1);
  write_torch(file("x.pt"),
              {{"t", turned}, {"b", Tensor::from<bool>({}, {true})}, {"none", Tensor::zeros(DType::kF8E5M2, {0})}});
  const auto torch = TorchFile::open(file("x.pt"));
  ASSERT_EQ(torch->tensors().size(), 3u);
  EXPECT_EQ(to_floats(torch->tensor("t")), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(torch->tensor("none").shape(), (Shape{0}));
  EXPECT_EQ(torch->tensors()[0].offset_bytes % 64, 0u);
  EXPECT_NE(error_of([&] { torch->tensor("u"); }).find("not_found"), std::string::npos);
  EXPECT_NE(error_of([&] { write_torch(file("y.pt"), {{"a", turned}, {"a", turned}}); }), "");
}

}  // namespace
}  // namespace lockstep
