// PNG whose pixels are stored as they are. For a picture of a kilobyte, setting up a compressor takes several times as
// long as writing the file.
#include <zlib.h>

#include <algorithm>

#include "io/image_codecs.h"

namespace lockstep {
namespace {

constexpr size_t kMostStored = 65535;  // bytes of one stored block of deflate

void append_big_endian(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 255);
}

const Bytef* bytes_of(const std::string& text, size_t from = 0) {
  return reinterpret_cast<const Bytef*>(text.data()) + from;
}

void append_chunk(std::string& out, const char* type, const std::string& content) {
  append_big_endian(out, static_cast<uint32_t>(content.size()));
  const size_t checked = out.size();  // the checksum is of the type and the content
  out.append(type).append(content);
  append_big_endian(out,
                    static_cast<uint32_t>(::crc32(0, bytes_of(out, checked), static_cast<uInt>(out.size() - checked))));
}

std::string stored_stream(const std::string& content) {
  std::string out("\x78\x01", 2);  // zlib, no dictionary
  out.reserve(content.size() + content.size() / kMostStored * 5 + 16);
  for (size_t at = 0; at < content.size(); at += kMostStored) {
    const size_t size = std::min(kMostStored, content.size() - at);
    out += static_cast<char>(at + size == content.size());  // the last one
    for (const size_t field : {size, ~size})
      for (const int shift : {0, 8}) out += static_cast<char>(field >> shift & 255);
    out.append(content, at, size);
  }
  append_big_endian(out, static_cast<uint32_t>(::adler32(1, bytes_of(content), static_cast<uInt>(content.size()))));
  return out;
}

}  // namespace

std::string encode_stored_png(const Tensor& pixels) {
  const auto height = static_cast<size_t>(pixels.dim(0)), channels = static_cast<size_t>(pixels.dim(2));
  const size_t line = pixels.bytes() / height;
  const auto* from = reinterpret_cast<const char*>(pixels.strided_data());
  std::string header, lines;
  for (const int64_t side : {pixels.dim(1), pixels.dim(0)}) append_big_endian(header, static_cast<uint32_t>(side));
  const char color = channels == 1 ? 0 : channels == 3 ? 2 : 6;
  header.append({8, color, 0, 0, 0});  // bits, color; deflate, filters by line, not interlaced
  lines.reserve((line + 1) * height);
  for (size_t y = 0; y < height; ++y) (lines += '\0').append(from + y * line, line);  // no filter
  std::string out("\x89PNG\r\n\x1a\n", 8);
  out.reserve(lines.size() + 256);
  append_chunk(out, "IHDR", header);
  append_chunk(out, "IDAT", stored_stream(lines));
  append_chunk(out, "IEND", "");
  return out;
}

}  // namespace lockstep
