// PNG whose pixels are stored as they are. For a picture of a kilobyte, setting up a compressor takes several times as
// long as writing the file.
#include <zlib.h>

#include <algorithm>

#include "io/image_codecs.h"

namespace lockstep {
namespace {

constexpr size_t kMostStored = 65535;  // bytes of one stored block of deflate

void append_big_endian(std::string& out, uint32_t value) {
  const char bytes[] = {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
                        static_cast<char>(value)};
  out.append(bytes, sizeof bytes);
}

const Bytef* bytes_of(const std::string& text, size_t from = 0) {
  return reinterpret_cast<const Bytef*>(text.data()) + from;
}

// The checksum of a chunk is of its type and its content, which begin here.
void end_chunk(std::string& out, size_t checked) {
  append_big_endian(out,
                    static_cast<uint32_t>(::crc32(0, bytes_of(out, checked), static_cast<uInt>(out.size() - checked))));
}

size_t begin_chunk(std::string& out, const char* type, size_t content_bytes) {
  append_big_endian(out, static_cast<uint32_t>(content_bytes));
  out.append(type, 4);
  return out.size() - 4;
}

// Lines of a picture as they are stored: each behind the byte that says it was not filtered.
class Lines {
 public:
  Lines(const char* from, size_t line) : from_(from), line_(line + 1) {}

  void append(std::string& out, size_t at, size_t size) const {
    while (size > 0) {
      const size_t row = at / line_, column = at % line_, part = std::min(size, line_ - column);
      if (column == 0) out += '\0';
      const size_t skipped = std::max<size_t>(column, 1);
      out.append(from_ + row * (line_ - 1) + skipped - 1, part - (skipped - column));
      at += part, size -= part;
    }
  }

 private:
  const char* from_;
  size_t line_;
};

}  // namespace

std::string encode_stored_png(const Tensor& pixels) {
  const auto height = static_cast<size_t>(pixels.dim(0)), channels = static_cast<size_t>(pixels.dim(2));
  const size_t line = pixels.bytes() / height, stored = (line + 1) * height;
  const size_t blocks = std::max<size_t>(1, (stored + kMostStored - 1) / kMostStored);
  const Lines lines(reinterpret_cast<const char*>(pixels.strided_data()), line);
  std::string out("\x89PNG\r\n\x1a\n", 8);
  out.reserve(stored + 5 * blocks + 63);
  size_t chunk = begin_chunk(out, "IHDR", 13);
  for (const int64_t side : {pixels.dim(1), pixels.dim(0)}) append_big_endian(out, static_cast<uint32_t>(side));
  const char color = channels == 1 ? 0 : channels == 3 ? 2 : 6;
  out.append({8, color, 0, 0, 0});  // bits, color; deflate, filters by line, not interlaced
  end_chunk(out, chunk);
  chunk = begin_chunk(out, "IDAT", 2 + 5 * blocks + stored + 4);
  out.append("\x78\x01", 2);  // zlib, no dictionary
  uLong sum = 1;
  for (size_t at = 0; at < stored; at += kMostStored) {
    const size_t size = std::min(kMostStored, stored - at);
    out += static_cast<char>(at + size == stored);  // the last one
    for (const size_t field : {size, ~size})
      for (const int shift : {0, 8}) out += static_cast<char>(field >> shift & 255);
    const size_t begin = out.size();
    lines.append(out, at, size);
    sum = ::adler32(sum, bytes_of(out, begin), static_cast<uInt>(size));
  }
  append_big_endian(out, static_cast<uint32_t>(sum));
  end_chunk(out, chunk);
  end_chunk(out, begin_chunk(out, "IEND", 0));
  return out;
}

}  // namespace lockstep
