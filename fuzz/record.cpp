// Layer: capture
// Fuzzes lines of records.jsonl: a line is skipped, or what it says is written and read again the same.
#include "capture/record.h"

#include <cstdlib>
#include <string_view>

#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const auto record = record_from_line({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    if (!record) return;
    const std::string line = line_from_record(*record);
    const auto again = record_from_line(line);
    if (!again || line_from_record(*again) != line) std::abort();
  });
}
