// Files: read-only maps, bounded reads, and writes that are whole or absent.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

namespace fs = std::filesystem;

// A regular file mapped read-only. Pipes, devices and sockets are refused before anything is read from them.
class MappedFile {
 public:
  static std::shared_ptr<const MappedFile> open(const fs::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const fs::path& path() const { return path_; }
  // Gives the memory of these bytes back; they are read from the file again when next looked at.
  void drop_pages(std::span<const std::byte> part) const;

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  fs::path path_;
};

// The whole of a small file. A file larger than `max_bytes` is refused unread.
std::string read_text(const fs::path& path, uint64_t max_bytes);

// Writes to a temporary name beside `path` and renames on commit(), so that a reader sees the old file or the whole new
// one. Destroyed without commit() it leaves nothing behind.
class AtomicFile {
 public:
  explicit AtomicFile(const fs::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

 private:
  void discard() noexcept;
  fs::path path_, temporary_;
  int fd_ = -1;
};

void write_atomically(const fs::path& path, std::string_view text);

}  // namespace lockstep
