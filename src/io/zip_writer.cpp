#include "io/zip_writer.h"

#include <zlib.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr uint64_t kWide = UINT32_MAX;
constexpr uint16_t kVersionPlain = 20, kVersionZip64 = 45, kUtf8Flag = 0x0800, kDosDate = 0x0021;  // 1980-01-01
constexpr uint16_t kPaddingId = 0x4246;  // "FB": what torch uses to align its tensors

class LittleEndian {
 public:
  LittleEndian& u16(uint64_t value) { return put(value, 2); }
  LittleEndian& u32(uint64_t value) { return put(value, 4); }
  LittleEndian& u64(uint64_t value) { return put(value, 8); }
  LittleEndian& text(std::string_view text) {
    bytes.append(text);
    return *this;
  }
  std::string bytes;

 private:
  LittleEndian& put(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
    return *this;
  }
};

uint64_t narrow(uint64_t value) {
  return std::min(value, kWide);
}

}  // namespace

void ZipWriter::write(std::string_view bytes) {
  file_.write(bytes);
  at_ += bytes.size();
}

void ZipWriter::add(const std::string& name, std::string_view text, size_t alignment) {
  add(name, {std::as_bytes(std::span(text.data(), text.size()))}, alignment);
}

void ZipWriter::add(const std::string& name, std::initializer_list<std::span<const std::byte>> pieces,
                    size_t alignment) {
  if (name.empty() || name.size() > 0xFFFF) fail(Code::kBadInput, "zip", "an entry name is empty or too long");
  if (!names_.insert(name).second) fail(Code::kBadInput, "zip", "the name \"" + name + "\" is taken");
  uint64_t size = 0;
  uLong crc = 0;
  for (const auto& piece : pieces) {
    size += piece.size();
    crc = ::crc32_z(crc, reinterpret_cast<const Bytef*>(piece.data()), piece.size());
  }
  const bool wide = size >= kWide;
  LittleEndian extra;
  if (wide) extra.u16(1).u16(16).u64(size).u64(size);
  if (alignment > 1) {
    const uint64_t start = at_ + 30 + name.size() + extra.bytes.size() + 4;
    const uint64_t padding = (alignment - start % alignment) % alignment;
    extra.u16(kPaddingId).u16(padding).text(std::string(padding, 'Z'));
  }
  entries_.push_back({name, static_cast<uint32_t>(crc), size, at_});
  LittleEndian header;
  header.text("PK\3\4").u16(wide ? kVersionZip64 : kVersionPlain).u16(kUtf8Flag).u16(0).u16(0).u16(kDosDate);
  header.u32(crc).u32(narrow(size)).u32(narrow(size)).u16(name.size()).u16(extra.bytes.size());
  write(header.bytes + name + extra.bytes);
  for (const auto& piece : pieces) {
    file_.write(piece);
    at_ += piece.size();
  }
}

void ZipWriter::commit() {
  const uint64_t directory = at_;
  for (const Written& entry : entries_) {
    LittleEndian extra, header;
    if (entry.size_bytes >= kWide) extra.u64(entry.size_bytes).u64(entry.size_bytes);
    if (entry.offset >= kWide) extra.u64(entry.offset);
    LittleEndian field;
    if (!extra.bytes.empty()) field.u16(1).u16(extra.bytes.size()).text(extra.bytes);
    const uint16_t version = field.bytes.empty() ? kVersionPlain : kVersionZip64;
    header.text("PK\1\2").u16(version).u16(version).u16(kUtf8Flag).u16(0).u16(0).u16(kDosDate);
    header.u32(entry.crc32).u32(narrow(entry.size_bytes)).u32(narrow(entry.size_bytes));
    header.u16(entry.name.size()).u16(field.bytes.size()).u16(0).u16(0).u16(0).u32(0).u32(narrow(entry.offset));
    write(header.bytes + entry.name + field.bytes);
  }
  const uint64_t size = at_ - directory, count = entries_.size();
  LittleEndian end;
  if (count >= 0xFFFF || size >= kWide || directory >= kWide) {
    end.text("PK\6\6").u64(44).u16(kVersionZip64).u16(kVersionZip64).u32(0).u32(0).u64(count).u64(count);
    end.u64(size).u64(directory).text("PK\6\7").u32(0).u64(at_).u32(1);
  }
  const uint64_t short_count = std::min<uint64_t>(count, 0xFFFF);
  end.text("PK\5\6").u16(0).u16(0).u16(short_count).u16(short_count).u32(narrow(size)).u32(narrow(directory)).u16(0);
  write(end.bytes);
  file_.commit();
}

}  // namespace lockstep
