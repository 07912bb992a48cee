// Zip containers over bytes in memory or a map. Entries stored without compression, which is how torch and NumPy write
// large arrays, are views; libraries for zip hand out copies only, so the directory is read here. Inflation is zlib's.
//
// Strict: directory and local headers must agree, entries may not overlap (the trick of zip bombs), nothing may be
// encrypted, names are unique.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

struct ZipEntry {
  std::string name;
  bool deflated = false;
  uint32_t crc32 = 0;
  uint64_t size_bytes = 0, stored_bytes = 0;  // as unpacked, as in the file
  uint64_t header_offset = 0, data_offset = 0;
};

// Bytes together with what keeps them alive.
struct OwnedBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

class ZipArchive {
 public:
  ZipArchive(std::span<const std::byte> bytes, std::string origin, std::shared_ptr<const void> owner);

  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* find(std::string_view name) const;
  // The whole entry. A view where stored; inflated and checked otherwise. `check_crc` reads stored bytes too.
  OwnedBytes read(const ZipEntry& entry, bool check_crc) const;
  // At most the first `most` bytes.
  OwnedBytes read_start(const ZipEntry& entry, uint64_t most) const;
  const std::string& origin() const { return origin_; }

 private:
  struct Directory {
    uint64_t offset, size_bytes, entries;
    uint64_t limit;  // where its end record begins
  };
  [[noreturn]] void corrupt(const std::string& what, uint64_t offset, const std::string& expected) const;
  uint64_t number(uint64_t offset, size_t bytes) const;
  Directory find_directory() const;
  void check_one_part(uint64_t at, size_t width, bool may_be_ones) const;
  void read_zip64(ZipEntry& entry, uint64_t extra, uint64_t extra_size, const bool (&wide)[3]) const;
  uint64_t read_entry(uint64_t at, uint64_t end);
  void check_local_headers(uint64_t directory_offset);
  OwnedBytes inflate_start(const ZipEntry& entry, uint64_t size) const;

  std::span<const std::byte> bytes_;
  std::string origin_;
  std::shared_ptr<const void> owner_;
  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace lockstep
