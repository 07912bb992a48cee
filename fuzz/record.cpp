// Layer: capture
// Fuzzes lines of records.jsonl: a line is skipped, or what it says is written and read again the same.
#include "capture/record.h"

#include <cstdlib>
#include <string_view>

#include "fuzz_input.h"
#include "run_lines.h"

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return lockstep::mutate_json_lines(data, size, max_size, seed, 0, lockstep::kWordsOfRuns, lockstep::kExamplesOfRuns);
}

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
