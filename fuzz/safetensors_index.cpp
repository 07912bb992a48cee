// Layer: io
// Fuzzes the index of a sharded checkpoint.
#include "fuzz_input.h"
#include "io/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    parse_checkpoint_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "fuzz");
  });
}
