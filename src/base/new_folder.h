// Folders whose names nobody else has: the prefix, and kRandomLetters letters behind it. Only this user may look into
// them.
#pragma once
#include <cstddef>
#include <string_view>

#include "base/file.h"

namespace lockstep {

inline constexpr size_t kRandomLetters = 6;

// Makes the folder, and `parent` where it does not exist. Error{kIo} of this operation where the system refuses.
fs::path make_new_folder(const fs::path& parent, std::string_view prefix, std::string_view operation);

// Such a folder, removed with all it holds.
class TemporaryFolder {
 public:
  TemporaryFolder(const fs::path& parent, std::string_view prefix, std::string_view operation)
      : path_(make_new_folder(parent, prefix, operation)) {}
  // In the system's folder for temporary files.
  TemporaryFolder(std::string_view prefix, std::string_view operation);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace lockstep
