// Layer: io
// Fuzzes JSON documents.
#include "base/json.h"

#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "fuzz");
  });
}
