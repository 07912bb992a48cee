// Bytes of a mapped file read through the file: where all of them are read once, that spares mapping their pages.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace lockstep {

class MappedReader {
 public:
  explicit MappedReader(const std::byte* inside);  // reads nothing when that is no mapped file's byte
  ~MappedReader();
  MappedReader(const MappedReader&) = delete;
  MappedReader& operator=(const MappedReader&) = delete;

  bool read(std::span<const std::byte> from, std::byte* to) const;  // false: copy them

 private:
  const std::byte* begin_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;
};

// For MappedFile: which file lies where.
void note_map(std::span<const std::byte> mapped, const std::filesystem::path& path, int fd);
void forget_map(const std::byte* begin);

}  // namespace lockstep
