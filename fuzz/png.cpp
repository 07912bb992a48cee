// Layer: io
// Fuzzes PNG pictures.
#include "fuzz_input.h"
#include "io/image_codecs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) { touch(decode_png(bytes, "fuzz").image.pixels); });
}
