// A disk that is full, for this program alone: its own write() and unlink() count what the files of a run take. Large
// tensors go past the page cache, where a full disk shows itself as a write that stops half way.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "capture/recording_tap.h"
#include "capture/run_reader.h"
#include "capture/scratch_home.h"

namespace {

constexpr int64_t kBlock = 4096;
std::atomic<bool> is_limited{false};
std::atomic<int64_t> left_bytes{0};
std::atomic<int> direct_writes{0};

bool counts(int fd) {
  struct stat info {};
  return is_limited && ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

// How much of a write still fits; a direct write stops at a block, as the kernel's does.
size_t granted(int fd, size_t bytes) {
  const bool direct = (::fcntl(fd, F_GETFL) & O_DIRECT) != 0;
  direct_writes += direct;
  int64_t fits = std::min(static_cast<int64_t>(bytes), std::max<int64_t>(0, left_bytes));
  if (direct && fits < static_cast<int64_t>(bytes)) fits = fits / kBlock * kBlock;
  left_bytes -= fits;
  return static_cast<size_t>(fits);
}

}  // namespace

extern "C" ssize_t write(int fd, const void* data, size_t bytes) {
  if (bytes > 0 && counts(fd) && (bytes = granted(fd, bytes)) == 0) {
    errno = ENOSPC;
    return -1;
  }
  return ::syscall(SYS_write, fd, data, bytes);
}

extern "C" ssize_t writev(int fd, const struct iovec* parts, int count) {
  if (!counts(fd)) return ::syscall(SYS_writev, fd, parts, count);
  ssize_t total = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t n = write(fd, parts[i].iov_base, parts[i].iov_len);
    if (n < 0) return total > 0 ? total : -1;
    total += n;
    if (static_cast<size_t>(n) < parts[i].iov_len) break;
  }
  return total;
}

extern "C" int unlink(const char* path) noexcept {
  struct stat info {};
  const bool frees = is_limited && ::lstat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1;
  const int result = static_cast<int>(::syscall(SYS_unlink, path));
  if (result == 0 && frees) left_bytes += info.st_size;
  return result;
}

namespace lockstep {
namespace {

constexpr int64_t kElements = 600'000;  // 2.4 MB: above the size from which writes are direct

class FullDisk {
 public:
  explicit FullDisk(int64_t bytes) {
    left_bytes = bytes;
    direct_writes = 0;
    is_limited = true;
  }
  ~FullDisk() { is_limited = false; }
};

double record_tensors(RunWriter& writer, int count) {
  double sum = 0;  // what the host computes, recorded or not
  for (int i = 0; i < count; ++i) {
    Tensor tensor = Tensor::empty(DType::kF32, {kElements});
    std::fill_n(tensor.mutable_data<float>(), kElements, static_cast<float>(i + 1));
    writer.record(named("t", i), tensor);
    sum += tensor.data<float>()[kElements - 1];
  }
  return sum;
}

bool has_direct_writes(const fs::path& folder) {
  const fs::path probe = folder / "probe";
  const int fd = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_DIRECT, 0600);
  if (fd >= 0) ::close(fd);
  ::unlink(probe.c_str());
  return fd >= 0;
}

TEST(FullDisk, LargeTensorsStopWithOneWarningAndStatisticsGoOn) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  {
    const FullDisk disk(6'000'000);  // two and a half tensors
    EXPECT_EQ(record_tensors(*writer, 10), 55);
    writer->close();
    if (has_direct_writes(home.path())) {
      EXPECT_GE(direct_writes, 3);
    }
  }
  EXPECT_EQ(home.warnings.size(), 1u);
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  EXPECT_EQ(run.status(), "finished");
  ASSERT_EQ(run.records().size(), 10u);
  int kept = 0;
  for (size_t i = 0; i < 10; ++i) {
    const Record& record = run.records()[i];
    EXPECT_EQ(record.stats->min, static_cast<double>(i + 1));
    EXPECT_FALSE(record.checksum.empty());
    if (!run.has_values(record)) continue;
    ++kept;
    EXPECT_TRUE(run.checksum_matches(record));
  }
  EXPECT_EQ(kept, 2);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(run.path() / "tensors")) files += entry.is_regular_file();
  EXPECT_EQ(files, 2) << "no half-written file is left";
}

TEST(FullDisk, NotOneByteLeft) {
  ScratchHome home;
  auto writer = RunWriter::create(home.options());
  record_tensors(*writer, 2);
  writer->flush();
  {
    const FullDisk disk(0);
    EXPECT_EQ(record_tensors(*writer, 10), 55);
    writer->close();
  }
  EXPECT_EQ(home.warnings.size(), 1u);
  const lockstep::Run run = lockstep::Run::open("latest", home.path());
  EXPECT_EQ(run.skipped_lines(), 0);
  ASSERT_EQ(run.records().size(), 2u);
  for (const Record& record : run.records()) EXPECT_TRUE(run.checksum_matches(record));
}

TEST(FullDisk, ALineThatDoesNotFitIsTakenBack) {
  for (const int64_t room : {100, 300, 500, 700, 900}) {
    ScratchHome home;
    auto writer = RunWriter::create(home.options());
    {
      const FullDisk disk(room);
      EXPECT_EQ(record_tensors(*writer, 5), 15);
      writer->close();
    }
    EXPECT_EQ(home.warnings.size(), 1u) << room;
    const lockstep::Run run = lockstep::Run::open("latest", home.path());
    EXPECT_EQ(run.skipped_lines(), 0) << room;
    EXPECT_LT(run.records().size(), 5u);
  }
}

}  // namespace
}  // namespace lockstep
