// Writes a zip archive of stored entries, whole or not at all; zip64 where a size or an offset needs it.
#pragma once
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/file.h"

namespace lockstep {

class ZipWriter {
 public:
  explicit ZipWriter(const fs::path& path) : file_(path) {}

  // The entry is the pieces, one after the other. Its data starts at a multiple of `alignment` (1: anywhere).
  void add(const std::string& name, std::initializer_list<std::span<const std::byte>> pieces, size_t alignment = 1);
  void add(const std::string& name, std::string_view text, size_t alignment = 1);
  void commit();

 private:
  struct Written {
    std::string name;
    uint32_t crc32;
    uint64_t size_bytes, offset;
  };
  void write(std::string_view bytes);

  AtomicFile file_;
  uint64_t at_ = 0;
  std::vector<Written> entries_;
  std::unordered_set<std::string> names_;
};

}  // namespace lockstep
