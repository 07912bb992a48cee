#include "base/new_folder.h"

#include <unistd.h>  // declares mkdtemp on macOS, as <cstdlib> does on Linux

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"

namespace lockstep {
namespace {

fs::path system_folder(std::string_view operation) {
  std::error_code error;
  fs::path folder = fs::temp_directory_path(error);
  if (error)
    fail(Code::kIo, operation, "there is no folder for temporary files: " + error.message(),
         {.hint = "TMPDIR=FOLDER, with a folder that exists"});
  return folder;
}

}  // namespace

fs::path make_new_folder(const fs::path& parent, std::string_view prefix, std::string_view operation) {
  std::error_code ignored;  // mkdtemp says what is wrong
  fs::create_directories(parent, ignored);
  std::string name = (fs::absolute(parent, ignored) / prefix).string() + std::string(kRandomLetters, 'X');
  if (!::mkdtemp(name.data()))
    fail(Code::kIo, operation, "no new folder can be made in " + parent.string() + ": " + std::strerror(errno));
  return name;
}

TemporaryFolder::TemporaryFolder(std::string_view prefix, std::string_view operation)
    : TemporaryFolder(system_folder(operation), prefix, operation) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace lockstep
