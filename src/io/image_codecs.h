// One pair of functions a picture format, each in its own file over its reference library.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "io/exif.h"
#include "io/image.h"

namespace lockstep {

// More pixels than this are refused before anything is allocated: a file of a few bytes can promise billions.
inline constexpr uint64_t kMaxImagePixels = uint64_t{1} << 27;
void check_image_size(uint64_t width, uint64_t height, std::string_view format, std::string_view origin);

// The picture as stored, with the EXIF orientation (1 to 8) beside it.
struct DecodedImage {
  Image image;
  int orientation = 1;
};

DecodedImage decode_png(std::span<const std::byte> bytes, std::string_view origin);
DecodedImage decode_jpeg(std::span<const std::byte> bytes, std::string_view origin);
DecodedImage decode_webp(std::span<const std::byte> bytes, std::string_view origin);

// `pixels` is contiguous [height, width, channels].
std::string encode_png(const Tensor& pixels, const std::map<std::string, std::string>& text,
                       PngPacking packing = PngPacking::kTight);
std::string encode_stored_png(const Tensor& pixels);  // u8, without text: what encode_png does with kNone
std::string encode_jpeg(const Tensor& pixels, const std::map<std::string, std::string>& text, int quality);
std::string encode_webp(const Tensor& pixels, const std::map<std::string, std::string>& text, int quality);

}  // namespace lockstep
