#include "io/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"
#include "tensor/storage.h"

namespace lockstep {
namespace {

constexpr uint32_t kLocalMagic = 0x04034b50, kCentralMagic = 0x02014b50, kEndMagic = 0x06054b50;
constexpr uint32_t kEnd64Magic = 0x06064b50, kLocator64Magic = 0x07064b50;
constexpr uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr uint64_t kMaxEntries = 4'000'000;
constexpr uint64_t kMaxInflatedBytes = uint64_t{16} << 30;  // of one compressed entry
constexpr uint64_t kMaxDeflateRatio = 1032;
constexpr uint64_t kFolderAttribute = 0x10;  // of DOS

uint32_t crc_of(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

void ZipArchive::corrupt(const std::string& what, uint64_t offset, const std::string& expected) const {
  fail(Code::kCorrupt, "zip", origin_ + ": " + what + " at offset " + std::to_string(offset), {.expected = expected});
}

uint64_t ZipArchive::number(uint64_t offset, size_t count) const {
  if (offset > bytes_.size() || bytes_.size() - offset < count)
    corrupt("the archive is cut short", offset, std::to_string(count) + " more bytes");
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(bytes_[offset + i]) << (8 * i);
  return value;
}

ZipArchive::ZipArchive(std::span<const std::byte> bytes, std::string origin, std::shared_ptr<const void> owner)
    : bytes_(bytes), origin_(std::move(origin)), owner_(std::move(owner)) {
  const Directory directory = find_directory();
  if (directory.offset > bytes_.size() || directory.size_bytes > bytes_.size() - directory.offset)
    corrupt("the directory lies outside the file", directory.offset,
            "it within " + std::to_string(bytes_.size()) + " bytes");
  if (directory.offset + directory.size_bytes != directory.limit)
    corrupt("the directory does not end where its end record begins", directory.limit,
            "its end at " + std::to_string(directory.offset + directory.size_bytes));
  if (directory.entries > directory.size_bytes / kCentralBytes || directory.entries > kMaxEntries)
    corrupt("the directory promises more entries than it has room for", directory.offset,
            "at most " + std::to_string(std::min(directory.size_bytes / kCentralBytes, kMaxEntries)));
  entries_.reserve(directory.entries);
  uint64_t at = directory.offset;
  const uint64_t end = directory.offset + directory.size_bytes;
  for (uint64_t i = 0; i < directory.entries; ++i) at = read_entry(at, end);
  if (at != end) corrupt("bytes follow the last directory entry", at, "the end record");
  check_local_headers(directory.offset);
}

// The end record stands at the very end, before a comment of at most 64 KiB whose length must fit exactly.
ZipArchive::Directory ZipArchive::find_directory() const {
  if (bytes_.size() < kEndBytes)
    corrupt("too short for a zip archive", bytes_.size(), "at least " + std::to_string(kEndBytes) + " bytes");
  const uint64_t last = bytes_.size() - kEndBytes, first = last > 0xFFFF ? last - 0xFFFF : 0;
  uint64_t end = last + 1;
  for (uint64_t at = last + 1; at-- > first;)
    if (number(at, 4) == kEndMagic && at + kEndBytes + number(at + 20, 2) == bytes_.size()) {
      end = at;
      break;
    }
  if (end > last) corrupt("no end of a zip directory", bytes_.size(), "PK\\5\\6 as the last record");
  const bool zip64 = end >= kLocatorBytes && number(end - kLocatorBytes, 4) == kLocator64Magic;
  check_one_part(end + 4, 2, zip64);
  if (!zip64) return {number(end + 16, 4), number(end + 12, 4), number(end + 10, 2), end};
  const uint64_t locator = end - kLocatorBytes, end64 = number(locator + 8, 8);
  if (number(locator + 4, 4) != 0 || number(locator + 16, 4) > 1)
    corrupt("an archive in several parts", locator, "one part");
  if (end64 > locator || locator - end64 < kEnd64Bytes || number(end64, 4) != kEnd64Magic)
    corrupt("no zip64 end record where its locator points", locator, "PK\\6\\6");
  check_one_part(end64 + 16, 4, false);
  return {number(end64 + 48, 8), number(end64 + 40, 8), number(end64 + 32, 8), end64};
}

// Two part numbers of `width` bytes, then the entries in this part and in all: 0, 0 and twice the same. In front of a
// zip64 record each may instead be all ones.
void ZipArchive::check_one_part(uint64_t at, size_t width, bool may_be_ones) const {
  const uint64_t ones = width == 2 ? 0xFFFF : UINT32_MAX, count_width = width == 2 ? 2 : 8;
  for (const uint64_t part : {number(at, width), number(at + width, width)})
    if (part != 0 && !(may_be_ones && part == ones)) corrupt("an archive in several parts", at, "one part");
  if (number(at + 2 * width, count_width) != number(at + 2 * width + count_width, count_width))
    corrupt("an archive in several parts", at, "one part");
}

// Fields that hold 0xFFFFFFFF stand in the zip64 extra field, in this order and only those.
void ZipArchive::read_zip64(ZipEntry& entry, uint64_t extra, uint64_t extra_size, const bool (&wide)[3]) const {
  uint64_t* const fields[3] = {&entry.size_bytes, &entry.stored_bytes, &entry.header_offset};
  uint64_t at = extra;
  const uint64_t end = extra + extra_size;
  while (end - at >= 4) {
    const uint64_t id = number(at, 2), size = number(at + 2, 2);
    at += 4;
    if (size > end - at) corrupt("an extra field runs past its entry", at, "its end at " + std::to_string(end));
    if (id == 1) {
      const uint64_t stop = at + size;
      for (int i = 0; i < 3; ++i) {
        if (!wide[i]) continue;
        if (stop - at < 8) corrupt("a zip64 field is missing", at, "8 bytes");
        *fields[i] = number(at, 8);
        at += 8;
      }
      return;
    }
    at += size;
  }
  corrupt("a large entry without its zip64 field", extra, "extra field 1");
}

uint64_t ZipArchive::read_entry(uint64_t at, uint64_t end) {
  if (end - at < kCentralBytes || number(at, 4) != kCentralMagic) corrupt("no directory entry", at, "PK\\1\\2");
  const uint64_t flags = number(at + 8, 2), method = number(at + 10, 2);
  const uint64_t name_size = number(at + 28, 2), extra_size = number(at + 30, 2), comment_size = number(at + 32, 2);
  const uint64_t total = kCentralBytes + name_size + extra_size + comment_size;
  if (total > end - at) corrupt("a directory entry runs past the directory", at, "its end at " + std::to_string(end));
  ZipEntry entry;
  entry.name.assign(reinterpret_cast<const char*>(bytes_.data()) + at + kCentralBytes, name_size);
  if (entry.name.empty() || entry.name.find('\0') != std::string::npos || !is_valid_utf8(entry.name))
    corrupt("an entry name that is empty or not UTF-8", at + kCentralBytes, "UTF-8 without zero bytes");
  if (flags & 0x2041)
    fail(Code::kUnsupported, "zip", origin_ + ": \"" + entry.name + "\" is encrypted", {.expected = "plain entries"});
  if (method != 0 && method != 8)
    fail(Code::kUnsupported, "zip", origin_ + ": \"" + entry.name + "\" uses another compression",
         {.expected = "stored or deflated", .got = "method " + std::to_string(method)});
  if (const uint64_t part = number(at + 34, 2); part != 0 && part != 0xFFFF)
    corrupt("an archive in several parts", at, "one part");
  if ((number(at + 38, 4) & kFolderAttribute) && !entry.name.ends_with('/'))
    corrupt("\"" + entry.name + "\" is marked as a folder", at, "a name that ends in /");
  entry.deflated = method == 8;
  entry.crc32 = static_cast<uint32_t>(number(at + 16, 4));
  entry.stored_bytes = number(at + 20, 4);
  entry.size_bytes = number(at + 24, 4);
  entry.header_offset = number(at + 42, 4);
  const bool wide[3] = {entry.size_bytes == UINT32_MAX, entry.stored_bytes == UINT32_MAX,
                        entry.header_offset == UINT32_MAX};
  if (wide[0] || wide[1] || wide[2]) read_zip64(entry, at + kCentralBytes + name_size, extra_size, wide);
  if (!entry.deflated && entry.size_bytes != entry.stored_bytes)
    corrupt("\"" + entry.name + "\" is stored but has two sizes", at, "one size");
  if (entry.deflated && entry.size_bytes / kMaxDeflateRatio > entry.stored_bytes)
    corrupt("\"" + entry.name + "\" promises more than deflate can hold", at,
            "at most " + std::to_string(kMaxDeflateRatio) + " bytes for one");
  if (!index_.emplace(entry.name, entries_.size()).second)
    corrupt("\"" + entry.name + "\" occurs twice", at, "each name once");
  entries_.push_back(std::move(entry));
  return at + total;
}

void ZipArchive::check_local_headers(uint64_t directory_offset) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (ZipEntry& entry : entries_) {
    const uint64_t at = entry.header_offset;
    if (at > directory_offset || directory_offset - at < kLocalBytes || number(at, 4) != kLocalMagic)
      corrupt("no local header for \"" + entry.name + "\"", at, "PK\\3\\4");
    const uint64_t name_size = number(at + 26, 2), extra_size = number(at + 28, 2);
    entry.data_offset = at + kLocalBytes + name_size + extra_size;
    if (entry.data_offset > directory_offset || entry.stored_bytes > directory_offset - entry.data_offset)
      corrupt("\"" + entry.name + "\" runs into the directory", at,
              "its end before " + std::to_string(directory_offset));
    if (name_size != entry.name.size() ||
        std::memcmp(bytes_.data() + at + kLocalBytes, entry.name.data(), name_size) != 0)
      corrupt("the local header names something other than \"" + entry.name + "\"", at, "the directory's name");
    if (number(at + 8, 2) != (entry.deflated ? 8u : 0u))
      corrupt("directory and local header of \"" + entry.name + "\" disagree on compression", at, "the same method");
    ranges.emplace_back(at, entry.data_offset + entry.stored_bytes);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second)
      corrupt("two entries overlap", ranges[i].first, "each byte in one entry");
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  const auto at = index_.find(std::string(name));
  return at == index_.end() ? nullptr : &entries_[at->second];
}

OwnedBytes ZipArchive::read(const ZipEntry& entry, bool check_crc) const {
  OwnedBytes out;
  if (entry.deflated) {
    out = inflate_start(entry, entry.size_bytes);
  } else {
    out = {bytes_.subspan(entry.data_offset, entry.stored_bytes), owner_};
    if (!check_crc) return out;
  }
  if (crc_of(out.bytes) != entry.crc32)
    corrupt("the checksum of \"" + entry.name + "\" does not fit its bytes", entry.data_offset, "the directory's");
  return out;
}

OwnedBytes ZipArchive::read_start(const ZipEntry& entry, uint64_t most) const {
  const uint64_t size = std::min(most, entry.size_bytes);
  if (entry.deflated) return inflate_start(entry, size);
  return {bytes_.subspan(entry.data_offset, size), owner_};
}

OwnedBytes ZipArchive::inflate_start(const ZipEntry& entry, uint64_t size) const {
  if (size > kMaxInflatedBytes)
    fail(Code::kMemory, "zip", origin_ + ": \"" + entry.name + "\" is too large to unpack",
         {.expected = "at most " + std::to_string(kMaxInflatedBytes) + " bytes", .got = std::to_string(size)});
  z_stream stream{};
  if (::inflateInit2(&stream, -MAX_WBITS) != Z_OK) fail(Code::kMemory, "zip", "zlib could not start");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> closing(&stream, ::inflateEnd);
  const std::shared_ptr<std::byte> out = allocate_bytes(size);
  uint64_t in_left = entry.stored_bytes, out_left = size;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes_.data() + entry.data_offset));
  stream.next_out = reinterpret_cast<Bytef*>(out.get());
  int status = Z_OK;
  constexpr uint64_t kStep = uint64_t{1} << 30;  // zlib counts in 32 bits
  while (status == Z_OK && (out_left > 0 || stream.avail_out > 0)) {
    if (stream.avail_in == 0) {
      stream.avail_in = static_cast<uInt>(std::min(kStep, in_left));
      in_left -= stream.avail_in;
    }
    if (stream.avail_out == 0) {
      stream.avail_out = static_cast<uInt>(std::min(kStep, out_left));
      out_left -= stream.avail_out;
    }
    status = ::inflate(&stream, Z_NO_FLUSH);
  }
  const bool whole = size == entry.size_bytes;
  if (stream.avail_out != 0 || out_left != 0)
    corrupt("\"" + entry.name + "\" unpacks to less than it promises", entry.data_offset,
            std::to_string(size) + " bytes");
  if (whole) {
    // The stream must end here: one more byte would mean that the promised size is a lie.
    Bytef extra = 0;
    while (status == Z_OK) {
      if (stream.avail_in == 0) {
        stream.avail_in = static_cast<uInt>(std::min(kStep, in_left));
        in_left -= stream.avail_in;
      }
      stream.next_out = &extra;
      stream.avail_out = 1;
      status = ::inflate(&stream, Z_NO_FLUSH);
      if (stream.avail_out == 0)
        corrupt("\"" + entry.name + "\" unpacks to more than it promises", entry.data_offset,
                std::to_string(size) + " bytes");
    }
    if (status != Z_STREAM_END)
      corrupt("the compressed bytes of \"" + entry.name + "\" are damaged", entry.data_offset,
              "the end of the deflate stream");
  }
  return {{out.get(), size}, out};
}

}  // namespace lockstep
