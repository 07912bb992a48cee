// Layer: capture
// Fuzzes a run on disk: run.json and records.jsonl from the input, read as any run is. Nothing outside the folder is
// opened, and every record that is kept can be asked for.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/new_folder.h"
#include "capture/run_reader.h"
#include "fuzz_input.h"
#include "run_lines.h"

namespace {

const lockstep::fs::path& folder() {
  static const lockstep::TemporaryFolder made("lockstep-fuzz-", "fuzz");
  static const lockstep::fs::path& filled = [&]() -> const lockstep::fs::path& {
    const lockstep::fs::path& path = made.path();
    lockstep::fs::create_directories(path / "tensors");
    // A header of version 1.0 and 24 bytes of values, for records that point here.
    std::ofstream file(path / "tensors" / "t.npy", std::ios::binary);
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    header.resize(117, ' ');
    file << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << header << '\n' << std::string(24, '\1');
    return path;
  }();
  return filled;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return lockstep::mutate_json_lines(data, size, max_size, seed, 0, lockstep::kWordsOfRuns, lockstep::kExamplesOfRuns);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    // The first line belongs to run.json, or is left to a whole one.
    const size_t split = text.find('\n');
    std::string manifest = split == std::string::npos ? "" : text.substr(0, split);
    const std::string records = split == std::string::npos ? text : text.substr(split + 1);
    if (manifest.empty() || manifest[0] != '{')
      manifest = R"({"format":"lockstep-run","version":1,"id":"x","name":"x","status":"finished"})";
    std::ofstream(folder() / "run.json", std::ios::binary) << manifest;
    std::ofstream(folder() / "records.jsonl", std::ios::binary) << records;
    const Run run = Run::open_path(folder());
    for (const Record& record : run.records()) {
      if (!run.find(record.key)) std::abort();
      if (!run.has_values(record)) continue;
      if (record.file.find("..") == 8 || record.file.find('/', 8) != std::string::npos) std::abort();
      try {
        touch(run.tensor(record));
        static_cast<void>(run.checksum_matches(record));
      } catch (const Error&) {  // not what its record says
      }
    }
  });
}
