#include <png.h>

#include <algorithm>
#include <bit>
#include <csetjmp>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "io/image_codecs.h"

namespace lockstep {
namespace {

constexpr size_t kMaxTextBytes = size_t{64} << 20;  // of one decompressed text chunk
constexpr uint64_t kMaxPngDeflateRatio = 1032;      // what deflate can reach at most

// libpng reports errors by longjmp. Everything that owns memory lives in these structs, outside the functions that
// jump.
struct PngSource {
  std::span<const std::byte> bytes;
  size_t at = 0;
  char message[160] = {};
};

void keep_message(char (&message)[160], const char* text) {
  std::strncpy(message, text, sizeof message - 1);
}

void on_read_error(png_structp png, png_const_charp text) {
  keep_message(static_cast<PngSource*>(png_get_error_ptr(png))->message, text);
  png_longjmp(png, 1);
}
void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep out, size_t size) {
  PngSource* source = static_cast<PngSource*>(png_get_io_ptr(png));
  if (size > source->bytes.size() - source->at) png_error(png, "the file is cut short");
  std::memcpy(out, source->bytes.data() + source->at, size);
  source->at += size;
}

struct PngReader {
  explicit PngReader(PngSource& source) {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, on_read_error, on_warning);
    info = png ? png_create_info_struct(png) : nullptr;
    end = png ? png_create_info_struct(png) : nullptr;
    if (!info || !end) fail(Code::kMemory, "png", "libpng could not start");
    png_set_read_fn(png, &source, on_read);
    png_set_user_limits(png, 1u << 24, 1u << 24);
    png_set_chunk_malloc_max(png, kMaxTextBytes);
    png_set_chunk_cache_max(png, 1000);
  }
  ~PngReader() { png_destroy_read_struct(&png, &info, &end); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // Reads up to the first pixel and asks for grey, RGB or RGBA in whole bytes.
  bool start() {
    if (setjmp(png_jmpbuf(png))) return false;
    png_read_info(png, info);
    const int color = png_get_color_type(png, info);
    const bool transparent = png_get_valid(png, info, PNG_INFO_tRNS) != 0;
    png_set_expand(png);  // palette to RGB, 1-4 bit grey to 8, tRNS to alpha
    if (color == PNG_COLOR_TYPE_GRAY_ALPHA || (color == PNG_COLOR_TYPE_GRAY && transparent)) png_set_gray_to_rgb(png);
    if (png_get_bit_depth(png, info) == 16 && std::endian::native == std::endian::little) png_set_swap(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    return true;
  }

  bool read_rows(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png))) return false;
    png_read_image(png, rows);
    png_read_end(png, end);
    return true;
  }

  png_structp png = nullptr;
  png_infop info = nullptr, end = nullptr;
};

std::string utf8_from_latin1(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      out += c;
    } else {
      out += static_cast<char>(0xC0 | byte >> 6);
      out += static_cast<char>(0x80 | (byte & 0x3F));
    }
  }
  return out;
}

void collect_text(png_structp png, png_infop info, std::map<std::string, std::string>& text) {
  png_textp entries = nullptr;
  int count = 0;
  png_get_text(png, info, &entries, &count);
  for (int i = 0; i < count; ++i) {
    const bool utf8 = entries[i].compression >= PNG_ITXT_COMPRESSION_NONE;
    const size_t size = utf8 ? entries[i].itxt_length : entries[i].text_length;
    const std::string_view content(entries[i].text ? entries[i].text : "", entries[i].text ? size : 0);
    text[utf8_from_latin1(entries[i].key)] = utf8 ? std::string(content) : utf8_from_latin1(content);
  }
}

struct PngSink {
  std::string bytes;
  char message[160] = {};
};

void on_write_error(png_structp png, png_const_charp text) {
  keep_message(static_cast<PngSink*>(png_get_error_ptr(png))->message, text);
  png_longjmp(png, 1);
}
void on_write(png_structp png, png_bytep data, size_t size) {
  // Never throws across libpng's frames: out of memory becomes libpng's own error.
  try {
    static_cast<PngSink*>(png_get_io_ptr(png))->bytes.append(reinterpret_cast<const char*>(data), size);
    return;
  } catch (...) {
  }
  png_error(png, "out of memory");
}
void on_flush(png_structp) {}

struct PngWriter {
  explicit PngWriter(PngSink& sink) {
    png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &sink, on_write_error, on_warning);
    info = png ? png_create_info_struct(png) : nullptr;
    if (!info) fail(Code::kMemory, "png", "libpng could not start");
    png_set_write_fn(png, &sink, on_write, on_flush);
  }
  ~PngWriter() { png_destroy_write_struct(&png, &info); }
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;

  void pack(PngPacking packing) {
    if (packing == PngPacking::kTight) return;
    png_set_compression_level(png, packing == PngPacking::kQuick ? 1 : 0);
    png_set_filter(png, PNG_FILTER_TYPE_BASE, packing == PngPacking::kQuick ? PNG_FILTER_SUB : PNG_FILTER_NONE);
  }

  bool write(uint32_t width, uint32_t height, int depth, int color, png_bytepp rows, png_textp text, int texts) {
    if (setjmp(png_jmpbuf(png))) return false;
    png_set_user_limits(png, 0x7FFFFFFF, 0x7FFFFFFF);
    png_set_IHDR(png, info, width, height, depth, color, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    if (texts > 0) png_set_text(png, info, text, texts);
    png_write_info(png, info);
    if (depth == 16 && std::endian::native == std::endian::little) png_set_swap(png);
    png_write_image(png, rows);
    png_write_end(png, info);
    return true;
  }

  png_structp png = nullptr;
  png_infop info = nullptr;
};

std::vector<png_bytep> row_pointers(std::byte* data, size_t height, size_t row_bytes) {
  std::vector<png_bytep> rows(height);
  for (size_t y = 0; y < height; ++y) rows[y] = reinterpret_cast<png_bytep>(data + y * row_bytes);
  return rows;
}

}  // namespace

DecodedImage decode_png(std::span<const std::byte> bytes, std::string_view origin) {
  PngSource source{bytes};
  PngReader reader(source);
  const auto corrupt = [&] {
    fail(Code::kCorrupt, "png",
         std::string(origin) + ": " + source.message + " (near offset " + std::to_string(source.at) + ")");
  };
  if (!reader.start()) corrupt();
  const uint32_t width = png_get_image_width(reader.png, reader.info),
                 height = png_get_image_height(reader.png, reader.info);
  check_image_size(width, height, "png", origin);
  const int depth = png_get_bit_depth(reader.png, reader.info), channels = png_get_channels(reader.png, reader.info);
  const size_t row_bytes = png_get_rowbytes(reader.png, reader.info);
  // Expansion turns 1 bit into at most 4 x 8; beyond that and deflate's best the pixels cannot be in the file.
  if (row_bytes * height / 32 > kMaxPngDeflateRatio * bytes.size())
    fail(Code::kCorrupt, "png", std::string(origin) + ": too few bytes for the size it promises",
         {.expected = "at least " + std::to_string(row_bytes * height / 32 / kMaxPngDeflateRatio),
          .got = std::to_string(bytes.size())});
  DecodedImage decoded;
  Tensor& pixels = decoded.image.pixels;
  pixels = Tensor::zeros(depth == 16 ? DType::kU16 : DType::kU8, {height, width, channels});
  if (row_bytes != pixels.bytes() / height) fail(Code::kInternal, "png", "unexpected row size");
  std::vector<png_bytep> rows = row_pointers(pixels.mutable_strided_data(), height, row_bytes);
  if (!reader.read_rows(rows.data())) corrupt();
  collect_text(reader.png, reader.info, decoded.image.text);
  collect_text(reader.png, reader.end, decoded.image.text);
  for (png_infop info : {reader.info, reader.end}) {
    png_bytep exif = nullptr;
    png_uint_32 size = 0;
    if (png_get_eXIf_1(reader.png, info, &size, &exif) != 0)
      decoded.orientation = exif_orientation(std::as_bytes(std::span(exif, size)));
  }
  return decoded;
}

std::string encode_png(const Tensor& pixels, const std::map<std::string, std::string>& text, PngPacking packing) {
  if (packing == PngPacking::kNone && text.empty() && pixels.dtype() == DType::kU8) return encode_stored_png(pixels);
  std::vector<png_text> entries;
  for (const auto& [key, content] : text) {
    const auto printable = [](char c) { return c >= 32 && c < 127; };
    if (key.empty() || key.size() > 79 || !std::all_of(key.begin(), key.end(), printable) || key.front() == ' ' ||
        key.back() == ' ' || key.find("  ") != std::string::npos)
      fail(Code::kBadInput, "png", "\"" + key + "\" cannot name a text in a PNG",
           {.expected = "1 to 79 printable ASCII characters"});
    if (content.find('\0') != std::string::npos)
      fail(Code::kBadInput, "png", "the text of \"" + key + "\" holds a zero byte");
    png_text entry{};
    const bool ascii =
        std::all_of(content.begin(), content.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    entry.compression = ascii ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE;
    entry.key = const_cast<char*>(key.c_str());
    entry.text = const_cast<char*>(content.c_str());
    (ascii ? entry.text_length : entry.itxt_length) = content.size();
    entries.push_back(entry);
  }
  const int64_t height = pixels.dim(0), width = pixels.dim(1), channels = pixels.dim(2);
  if (height > 0x7FFFFFFF || width > 0x7FFFFFFF)
    fail(Code::kBadInput, "png", to_string(pixels.shape()) + " is too large");
  const int color = channels == 1 ? PNG_COLOR_TYPE_GRAY : channels == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_RGBA;
  PngSink sink;
  PngWriter writer(sink);
  writer.pack(packing);
  std::vector<png_bytep> rows = row_pointers(const_cast<std::byte*>(pixels.strided_data()), static_cast<size_t>(height),
                                             pixels.bytes() / static_cast<size_t>(height));
  if (!writer.write(static_cast<uint32_t>(width), static_cast<uint32_t>(height), pixels.dtype() == DType::kU16 ? 16 : 8,
                    color, rows.data(), entries.data(), static_cast<int>(entries.size())))
    fail(Code::kInternal, "png", sink.message);
  return std::move(sink.bytes);
}

}  // namespace lockstep
