#include "io/image.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "io/image_codecs.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

bool starts_with(std::span<const std::byte> bytes, std::string_view magic, size_t at = 0) {
  return bytes.size() >= at + magic.size() && std::memcmp(bytes.data() + at, magic.data(), magic.size()) == 0;
}

// A picture turned upright. Orientation n says where row 0 and column 0 of the stored picture belong.
Tensor upright(const Tensor& stored, int orientation) {
  if (orientation == 1) return stored;
  const int64_t height = stored.dim(0), width = stored.dim(1);
  const bool swapped = orientation >= 5;
  const bool flip_rows = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  const bool flip_columns = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const Tensor turned = swapped ? stored.transpose(0, 1) : stored;
  const int64_t rows = swapped ? width : height, columns = swapped ? height : width;
  Tensor out = Tensor::empty(stored.dtype(), {rows, columns, stored.dim(2)});  // [height, width, channels]
  // Strides in bytes; a flipped axis is walked from its far end.
  const size_t pixel = static_cast<size_t>(stored.dim(2)) * dtype_bytes(stored.dtype());
  const int64_t item = static_cast<int64_t>(dtype_bytes(stored.dtype()));
  const int64_t row_step = turned.strides()[0] * item, column_step = turned.strides()[1] * item;
  const std::byte* from = turned.strided_data();
  std::byte* to = out.mutable_strided_data();
  for (int64_t y = 0; y < rows; ++y)
    for (int64_t x = 0; x < columns; ++x, to += pixel)
      std::memcpy(to,
                  from + (flip_rows ? rows - 1 - y : y) * row_step + (flip_columns ? columns - 1 - x : x) * column_step,
                  pixel);
  return out;
}

thread_local uint64_t most_pixels = kMaxImagePixels;

}  // namespace

PixelLimit::PixelLimit(uint64_t pixels) : before_(most_pixels) {
  most_pixels = std::min(before_, pixels);
}

PixelLimit::~PixelLimit() {
  most_pixels = before_;
}

void check_image_size(uint64_t width, uint64_t height, std::string_view format, std::string_view origin) {
  if (width == 0 || height == 0 || width > most_pixels / height)
    fail(Code::kBadInput, format, std::string(origin) + ": the size of the picture is out of range",
         {.expected = "1 to " + std::to_string(most_pixels) + " pixels",
          .got = std::to_string(width) + " x " + std::to_string(height)});
}

Image parse_image(std::span<const std::byte> bytes, std::string_view origin) {
  DecodedImage decoded;
  if (starts_with(bytes, "\x89PNG\r\n\x1a\n"))
    decoded = decode_png(bytes, origin);
  else if (starts_with(bytes, "\xff\xd8\xff"))
    decoded = decode_jpeg(bytes, origin);
  else if (starts_with(bytes, "RIFF") && starts_with(bytes, "WEBP", 8))
    decoded = decode_webp(bytes, origin);
  else
    fail(Code::kUnsupported, "image", std::string(origin) + " is not a picture we read",
         {.expected = "PNG, JPEG or WebP"});
  decoded.image.pixels = upright(decoded.image.pixels, decoded.orientation);
  return std::move(decoded.image);
}

Image read_image(const fs::path& path) {
  return parse_image(MappedFile::open(path)->bytes(), path.string());
}

std::string encode_image(std::string_view format, const Image& image, int quality, PngPacking packing) {
  const Tensor& pixels = image.pixels;
  if (!pixels.defined() || pixels.rank() != 3 || (pixels.dim(2) != 1 && pixels.dim(2) != 3 && pixels.dim(2) != 4) ||
      pixels.numel() == 0)
    fail(Code::kBadInput, "image", "not a picture",
         {.expected = "[height, width, 1, 3 or 4]",
          .got = pixels.defined() ? to_string(pixels.shape()) : std::string("nothing")});
  if (pixels.dtype() != DType::kU8 && pixels.dtype() != DType::kU16)
    fail(Code::kBadInput, "image", "pixels of the wrong type",
         {.expected = "u8 or u16", .got = std::string(dtype_name(pixels.dtype()))});
  if (quality < 1 || quality > 100)
    fail(Code::kBadInput, "image", "quality out of range", {.expected = "1 to 100", .got = std::to_string(quality)});
  const Tensor packed = pixels.contiguous();
  if (format == "png") return encode_png(packed, image.text, packing);
  if (format == "jpeg") return encode_jpeg(packed, image.text, quality);
  if (format == "webp") return encode_webp(packed, image.text, quality);
  fail(Code::kBadInput, "image", "no picture format " + std::string(format), {.expected = "png, jpeg or webp"});
}

void write_image(const fs::path& path, const Image& image, int quality) {
  const std::string extension = path.extension().string();
  const bool known = extension == ".png" || extension == ".jpg" || extension == ".jpeg" || extension == ".webp";
  if (!known)
    fail(Code::kBadInput, "image", "no picture format for " + path.string(),
         {.expected = ".png, .jpg, .jpeg or .webp"});
  write_atomically(path, encode_image(extension == ".jpg" ? "jpeg" : extension.substr(1), image, quality));
}

}  // namespace lockstep
