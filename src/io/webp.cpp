#include <webp/decode.h>
#include <webp/encode.h>
#include <webp/mux.h>

#include <cstring>
#include <memory>

#include "base/error.h"
#include "io/image_codecs.h"

namespace lockstep {
namespace {

// The EXIF chunk of the RIFF container, empty when there is none.
std::span<const std::byte> exif_chunk(std::span<const std::byte> bytes) {
  size_t at = 12;  // "RIFF", size, "WEBP"
  while (bytes.size() >= 8 && at <= bytes.size() - 8) {
    uint32_t size = 0;
    for (size_t i = 0; i < 4; ++i) size |= static_cast<uint32_t>(bytes[at + 4 + i]) << (8 * i);
    const size_t left = bytes.size() - at - 8;
    if (size > left) return {};
    if (std::memcmp(bytes.data() + at, "EXIF", 4) == 0) return bytes.subspan(at + 8, size);
    at += 8 + size_t{size} + (size & 1);
  }
  return {};
}

const char* status_text(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "out of memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "an unsupported feature";
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the file is cut short";
    default:
      return "not valid WebP data";
  }
}

// The stream in a container that also carries an EXIF chunk.
std::string with_exif(const uint8_t* stream, size_t size, const std::string& exif) {
  const std::unique_ptr<WebPMux, void (*)(WebPMux*)> mux(WebPMuxNew(), WebPMuxDelete);
  const WebPData picture{stream, size}, chunk{reinterpret_cast<const uint8_t*>(exif.data()), exif.size()};
  WebPData whole{};
  if (!mux || WebPMuxSetImage(mux.get(), &picture, 0) != WEBP_MUX_OK ||
      WebPMuxSetChunk(mux.get(), "EXIF", &chunk, 0) != WEBP_MUX_OK || WebPMuxAssemble(mux.get(), &whole) != WEBP_MUX_OK)
    fail(Code::kInternal, "webp", "the picture's text could not be attached");
  std::string out(reinterpret_cast<const char*>(whole.bytes), whole.size);
  WebPDataClear(&whole);
  return out;
}

}  // namespace

DecodedImage decode_webp(std::span<const std::byte> bytes, std::string_view origin) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(data, bytes.size(), &features);
  if (status != VP8_STATUS_OK)
    fail(Code::kCorrupt, "webp", std::string(origin) + ": " + status_text(status) + " in the header");
  if (features.has_animation)
    fail(Code::kUnsupported, "webp", std::string(origin) + " is an animation", {.expected = "one picture"});
  check_image_size(static_cast<uint64_t>(features.width), static_cast<uint64_t>(features.height), "webp", origin);
  DecodedImage decoded;
  Tensor& pixels = decoded.image.pixels;
  pixels = Tensor::zeros(DType::kU8, {features.height, features.width, features.has_alpha ? 4 : 3});
  const int row_bytes = features.width * (features.has_alpha ? 4 : 3);
  const auto decode = features.has_alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (!decode(data, bytes.size(), pixels.mutable_data<uint8_t>(), pixels.bytes(), row_bytes))
    fail(Code::kCorrupt, "webp", std::string(origin) + ": the picture data is damaged or cut short");
  const std::span<const std::byte> exif = exif_chunk(bytes);
  decoded.orientation = exif_orientation(exif);
  decoded.image.text = exif_text(exif);
  return decoded;
}

std::string encode_webp(const Tensor& pixels, const std::map<std::string, std::string>& text, int quality) {
  if (pixels.dtype() != DType::kU8 || pixels.dim(2) == 1)
    fail(Code::kBadInput, "webp", "WebP holds 8-bit RGB or RGBA only",
         {.got = std::string(dtype_name(pixels.dtype())) + " " + to_string(pixels.shape()), .hint = ".png"});
  if (pixels.dim(0) > WEBP_MAX_DIMENSION || pixels.dim(1) > WEBP_MAX_DIMENSION)
    fail(Code::kBadInput, "webp", to_string(pixels.shape()) + " is too large for WebP", {.hint = ".png"});
  const int height = static_cast<int>(pixels.dim(0)), width = static_cast<int>(pixels.dim(1)),
            channels = static_cast<int>(pixels.dim(2));
  const uint8_t* data = pixels.data<uint8_t>();
  uint8_t* out = nullptr;
  size_t size = 0;
  if (quality == 100)
    size =
        (channels == 4 ? WebPEncodeLosslessRGBA : WebPEncodeLosslessRGB)(data, width, height, width * channels, &out);
  else
    size = (channels == 4 ? WebPEncodeRGBA : WebPEncodeRGB)(data, width, height, width * channels,
                                                            static_cast<float>(quality), &out);
  const std::unique_ptr<uint8_t, void (*)(void*)> owned(out, WebPFree);
  if (size == 0) fail(Code::kInternal, "webp", "the picture could not be encoded");
  constexpr size_t kMaxText = 1 << 19;
  const std::string exif = text.empty() ? std::string() : exif_with_text(text, kMaxText);
  return exif.empty() ? std::string(reinterpret_cast<const char*>(out), size) : with_exif(out, size, exif);
}

}  // namespace lockstep
