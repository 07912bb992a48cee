#include "base/folder.h"

namespace lockstep {

std::vector<fs::directory_entry> folder_entries(const fs::path& folder, std::string_view operation) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  while (!error && at != fs::directory_iterator()) {
    entries.push_back(*at);
    at.increment(error);
  }
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    fail(Code::kIo, operation, folder.string() + ": " + error.message());
  return entries;
}

}  // namespace lockstep
