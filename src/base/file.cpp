#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/broken_pipe.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mapped_reader.h"
#include "base/platform/memory_maps.h"

namespace lockstep {
namespace {

[[noreturn]] void fail_system(std::string_view operation, const fs::path& path) {
  const int error = errno;
  const Code code = error == ENOENT || error == ENOTDIR                         ? Code::kNotFound
                    : error == ELOOP || error == ENAMETOOLONG || error == ENXIO ? Code::kBadInput
                                                                                : Code::kIo;
  fail(code, operation, path.string() + ": " + std::strerror(error));
}

struct OpenFile {
  int fd = -1;
  uint64_t size = 0;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
};

void open_regular(const fs::path& path, OpenFile& file) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not hang before we can refuse it.
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) fail_system("open", path);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) fail_system("open", path);
  if (!S_ISREG(info.st_mode))
    fail(Code::kBadInput, "open", path.string() + " is not a regular file",
         {.expected = "a file", .got = S_ISDIR(info.st_mode) ? "a folder" : "a special file"});
  file.size = static_cast<uint64_t>(info.st_size);
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const fs::path& path) {
  OpenFile file;
  open_regular(path, file);
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->path_ = path;
  mapped->size_ = file.size;
  if (file.size > 0) {
    void* data = ::mmap(nullptr, file.size, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (data == MAP_FAILED) fail_system("map", path);
    mapped->data_ = static_cast<const std::byte*>(data);
    note_map(mapped->bytes(), path, file.fd);
  }
  note("open", "{}: {} bytes mapped", path.string(), file.size);
  return mapped;
}

MappedFile::~MappedFile() {
  if (!data_) return;
  forget_map(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::drop_pages(std::span<const std::byte> part) const {
  // Whole pages inside the part alone: its neighbours' may be in use.
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(part.data() - data_);
  const size_t begin = (offset + page - 1) / page * page, end = (offset + part.size()) / page * page;
  if (begin < end) give_back_pages(const_cast<std::byte*>(data_) + begin, end - begin);
}

std::string read_text(const fs::path& path, uint64_t max_bytes) {
  OpenFile file;
  open_regular(path, file);
  if (file.size > max_bytes)
    fail(Code::kBadInput, "read", path.string() + " is too large",
         {.expected = "at most " + std::to_string(max_bytes) + " bytes", .got = std::to_string(file.size)});
  std::string text(file.size, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::read(file.fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_system("read", path);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  note("read", "{}: {} bytes", path.string(), done);
  return text;
}

AtomicFile::AtomicFile(const fs::path& path) : path_(path) {
  static std::atomic<uint64_t> counter{0};
  temporary_ = path;
  temporary_ += ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_system("write", path);
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::discard() noexcept {
  if (fd_ < 0) return;
  ::close(fd_);
  fd_ = -1;
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (!write_fully(fd_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()})) fail_system("write", path_);
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void AtomicFile::commit() {
  if (::close(fd_) != 0) {
    fd_ = -1;
    const int error = errno;
    ::unlink(temporary_.c_str());
    errno = error;
    fail_system("write", path_);
  }
  fd_ = -1;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    errno = error;
    fail_system("write", path_);
  }
  note("write", "{}", path_.string());
}

void write_atomically(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace lockstep
