// Layer: io
// Fuzzes .npy files.
#include "io/npy.h"

#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) { touch(parse_npy(bytes, "fuzz", nullptr)); });
}
