// Pictures: PNG, JPEG and WebP in and out, through their reference codecs.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "io/tensor_info.h"

namespace lockstep {

inline constexpr int kPictureQuality = 95;

struct Image {
  Tensor pixels;  // [height, width, channels] u8 or u16; channels 1, 3 or 4; EXIF orientation applied
  std::map<std::string, std::string> text;  // metadata: PNG text chunks, elsewhere EXIF
};

// For as long as it lives, this thread refuses to decode pictures of more pixels.
class PixelLimit {
 public:
  explicit PixelLimit(uint64_t pixels);
  ~PixelLimit();
  PixelLimit(const PixelLimit&) = delete;
  PixelLimit& operator=(const PixelLimit&) = delete;

 private:
  uint64_t before_;
};

Image read_image(const fs::path& path);  // by content, whatever the extension
Image parse_image(std::span<const std::byte> bytes, std::string_view origin);
void write_image(const fs::path& path, const Image& image,
                 int quality = kPictureQuality);  // by extension: .png .jpg .jpeg .webp; atomic
// How small a PNG is made, and how long that takes; the pixels are the same.
enum class PngPacking { kTight, kQuick, kNone };
std::string encode_image(std::string_view format, const Image& image, int quality = kPictureQuality,
                         PngPacking packing = PngPacking::kTight);  // "png", "jpeg" or "webp"; WebP at 100 is lossless

}  // namespace lockstep
