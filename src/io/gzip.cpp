#include "io/gzip.h"

#include <zlib.h>

#include "base/error.h"

namespace lockstep {

std::string gzip(std::string_view bytes, int level) {
  z_stream stream{};
  if (deflateInit2(&stream, level, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK)
    fail(Code::kMemory, "gzip", "no memory to compress");
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = bytes.size() > UINT32_MAX ? Z_BUF_ERROR : deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) fail(Code::kMemory, "gzip", "too much to compress at once");
  return out;
}

}  // namespace lockstep
