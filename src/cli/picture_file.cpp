#include "cli/picture_file.h"

#include "base/error.h"

namespace lockstep {

void check_picture_file(const std::string& operation, const fs::path& path) {
  const std::string extension = path.extension().string();
  if (extension != ".png" && extension != ".jpg" && extension != ".jpeg" && extension != ".webp")
    fail(Code::kUsage, operation, "--output: unknown picture format \"" + extension + "\"",
         {.expected = ".png, .jpg or .webp"});
  const fs::path folder = path.parent_path();
  std::error_code error;
  if (!folder.empty() && !fs::is_directory(folder, error))
    fail(Code::kNotFound, operation, "--output: the folder " + folder.string() + " does not exist");
}

}  // namespace lockstep
