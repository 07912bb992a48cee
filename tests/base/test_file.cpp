#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/mapped_reader.h"

namespace lockstep {
namespace {

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("lockstep-base-" + std::to_string(::getpid()) + "-" +
                                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  static Code code_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kInternal;
  }
  fs::path folder_;
};

TEST_F(FileTest, MapsWhatIsThere) {
  write_atomically(folder_ / "x", "hello");
  const auto file = MappedFile::open(folder_ / "x");
  EXPECT_EQ(std::memcmp(file->bytes().data(), "hello", 5), 0);
  write_atomically(folder_ / "empty", "");
  EXPECT_TRUE(MappedFile::open(folder_ / "empty")->bytes().empty());
}

TEST_F(FileTest, AMappedFileIsReadThroughTheFileItself) {
  std::string text(10005, 'a');
  text.replace(10000, 5, "hello");
  write_atomically(folder_ / "x", text);
  const auto file = MappedFile::open(folder_ / "x");
  std::string got(5, ' ');
  const auto read = [&](std::span<const std::byte> from) {
    return MappedReader(from.data()).read(from, reinterpret_cast<std::byte*>(got.data()));
  };
  EXPECT_TRUE(read(file->bytes().subspan(10000)));
  EXPECT_EQ(got, "hello");
  const std::string elsewhere = "world";
  EXPECT_FALSE(read(std::as_bytes(std::span(elsewhere)))) << "no mapped file";
  write_atomically(folder_ / "x", std::string(10005, 'b'));  // another file under the same name
  EXPECT_FALSE(read(file->bytes().subspan(10000)));
}

TEST_F(FileTest, AMapOutlivesTheFile) {
  write_atomically(folder_ / "x", "hello");
  const auto file = MappedFile::open(folder_ / "x");
  write_atomically(folder_ / "x", "other");
  EXPECT_EQ(std::memcmp(file->bytes().data(), "hello", 5), 0);
}

TEST_F(FileTest, SpecialFilesAreRefusedUnread) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(code_of([&] { MappedFile::open(folder_ / "pipe"); }), Code::kBadInput);  // and does not wait for a writer
  EXPECT_EQ(code_of([&] { read_text(folder_ / "pipe", 100); }), Code::kBadInput);
  EXPECT_EQ(code_of([&] { MappedFile::open(folder_); }), Code::kBadInput);
  EXPECT_EQ(code_of([&] { MappedFile::open("/dev/zero"); }), Code::kBadInput);
  EXPECT_EQ(code_of([&] { MappedFile::open(folder_ / "none"); }), Code::kNotFound);
  fs::create_symlink("loop", folder_ / "loop");
  EXPECT_EQ(code_of([&] { MappedFile::open(folder_ / "loop"); }), Code::kBadInput);
  EXPECT_EQ(code_of([&] { read_text(folder_ / "loop", 100); }), Code::kBadInput);
  fs::create_symlink("nowhere", folder_ / "dangling");
  EXPECT_EQ(code_of([&] { MappedFile::open(folder_ / "dangling"); }), Code::kNotFound);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const fs::path here = fs::current_path();  // relative: an address holds only 108 bytes
  fs::current_path(folder_);
  std::strcpy(address.sun_path, "socket");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  fs::current_path(here);
  EXPECT_EQ(code_of([&] { MappedFile::open(folder_ / "socket"); }), Code::kBadInput);
  ::close(socket);
}

TEST_F(FileTest, ReadTextIsBounded) {
  write_atomically(folder_ / "x", std::string(100, 'a'));
  EXPECT_EQ(read_text(folder_ / "x", 100).size(), 100u);
  EXPECT_EQ(code_of([&] { read_text(folder_ / "x", 99); }), Code::kBadInput);
}

TEST_F(FileTest, AnAbandonedWriteLeavesTheOldFileAndNothingElse) {
  write_atomically(folder_ / "x", "old");
  {
    AtomicFile file(folder_ / "x");
    file.write("new, but never finished");
  }
  EXPECT_EQ(read_text(folder_ / "x", 100), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  EXPECT_EQ(code_of([&] { write_atomically(folder_ / "no" / "such" / "folder", "x"); }), Code::kNotFound);
}

}  // namespace
}  // namespace lockstep
