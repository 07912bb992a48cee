// Folders, and what a refusal of the system means: it says nothing about a file, which may be there and whole.
#pragma once
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {

// What a folder holds, in any order; nothing where there is no such folder. Error{kIo} where the system does not say.
std::vector<fs::directory_entry> folder_entries(const fs::path& folder, std::string_view operation);

// For those who go on without a file that cannot be read: too many open files, no memory and a failing disk are not its
// fault, and going on would be a wrong answer.
inline bool system_refused(const Error& error) {
  return error.code() == Code::kIo || error.code() == Code::kMemory || error.code() == Code::kCancelled;
}

}  // namespace lockstep
