#include <cstring>

#include "io/image_codecs.h"

namespace lockstep {

int exif_orientation(std::span<const std::byte> exif) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  if (exif.size() >= kPrefix.size() && std::memcmp(exif.data(), kPrefix.data(), kPrefix.size()) == 0)
    exif = exif.subspan(kPrefix.size());
  if (exif.size() < 8) return 1;
  const bool little = exif[0] == std::byte{'I'} && exif[1] == std::byte{'I'};
  const bool big = exif[0] == std::byte{'M'} && exif[1] == std::byte{'M'};
  if (!little && !big) return 1;
  const auto read = [&](size_t at, size_t bytes) {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i)
      value |= static_cast<uint32_t>(exif[at + i]) << (8 * (little ? i : bytes - 1 - i));
    return value;
  };
  const size_t directory = read(4, 4);
  if (read(2, 2) != 42 || directory > exif.size() - 2) return 1;
  const size_t entries = read(directory, 2);
  constexpr size_t kEntryBytes = 12;
  constexpr uint32_t kOrientationTag = 0x0112, kShort = 3;
  for (size_t i = 0; i < entries; ++i) {
    const size_t at = directory + 2 + i * kEntryBytes;
    if (at + kEntryBytes > exif.size()) return 1;
    if (read(at, 2) != kOrientationTag) continue;
    const uint32_t value = read(at + 8, 2);
    return read(at + 2, 2) == kShort && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace lockstep
