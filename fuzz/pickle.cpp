// Layer: io
// Fuzzes pickles, and the walk over what they hold.
#include "io/pickle.h"

#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const PickleDocument document = parse_pickle(bytes, "fuzz");
    tensors_in(document.root, "fuzz");
  });
}
