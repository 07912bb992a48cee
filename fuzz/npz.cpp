// Layer: io
// Fuzzes .npz archives, stored and deflated.
#include "io/npz.h"

#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const auto file = NpzFile::parse(bytes, "fuzz", nullptr);
    for (const TensorInfo& info : file->tensors()) touch(file->tensor(info.name));
  });
}
