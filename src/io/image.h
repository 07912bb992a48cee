// Pictures: PNG, JPEG and WebP in and out, through their reference codecs.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "io/tensor_info.h"

namespace lockstep {

struct Image {
  Tensor pixels;  // [height, width, channels] u8 or u16; channels 1, 3 or 4; EXIF orientation applied
  std::map<std::string, std::string> text;  // metadata: PNG text chunks, elsewhere EXIF
};

Image read_image(const fs::path& path);  // by content, whatever the extension
Image parse_image(std::span<const std::byte> bytes, std::string_view origin);
void write_image(const fs::path& path, const Image& image,
                 int quality = 95);  // by extension: .png .jpg .jpeg .webp; atomic; WebP at 100 is lossless

}  // namespace lockstep
