#include "base/mapped_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>

namespace lockstep {
namespace {

struct MapEntry {
  size_t size;
  std::filesystem::path path;
  dev_t device;
  ino_t inode;
};

struct LiveMaps {
  std::mutex mutex;
  std::map<const std::byte*, MapEntry> by_begin;
};

LiveMaps& live_maps() {
  static auto* maps = new LiveMaps;  // outlives every map, also those of static objects
  return *maps;
}

}  // namespace

void note_map(std::span<const std::byte> mapped, const std::filesystem::path& path, int fd) {
  struct stat about = {};
  if (mapped.empty() || ::fstat(fd, &about) != 0) return;
  const std::lock_guard lock(live_maps().mutex);
  live_maps().by_begin[mapped.data()] = {mapped.size(), path, about.st_dev, about.st_ino};
}

void forget_map(const std::byte* begin) {
  const std::lock_guard lock(live_maps().mutex);
  live_maps().by_begin.erase(begin);
}

MappedReader::MappedReader(const std::byte* inside) {
  if (!inside) return;
  const std::lock_guard lock(live_maps().mutex);
  const auto after = live_maps().by_begin.upper_bound(inside);
  if (after == live_maps().by_begin.begin()) return;
  const auto& [begin, entry] = *std::prev(after);
  if (inside >= begin + entry.size) return;
  const int fd = ::open(entry.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return;
  struct stat about = {};
  // The path may lead to another file by now: only the one that is mapped will do.
  if (::fstat(fd, &about) != 0 || about.st_dev != entry.device || about.st_ino != entry.inode) {
    ::close(fd);
    return;
  }
  begin_ = begin;
  size_ = entry.size;
  fd_ = fd;
}

MappedReader::~MappedReader() {
  if (fd_ >= 0) ::close(fd_);
}

bool MappedReader::read(std::span<const std::byte> from, std::byte* to) const {
  if (fd_ < 0 || from.data() < begin_ || from.data() + from.size() > begin_ + size_) return false;
  const auto offset = static_cast<off_t>(from.data() - begin_);
  for (size_t done = 0; done < from.size();) {
    const ssize_t n = ::pread(fd_, to + done, from.size() - done, offset + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace lockstep
