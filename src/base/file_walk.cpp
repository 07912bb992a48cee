#include "base/file_walk.h"

#include <chrono>

#include "base/error.h"
#include "base/interrupt.h"

namespace lockstep {

bool walk_files(const fs::path& folder, const WalkLimits& limits, const char* operation,
                const std::function<void(const fs::directory_entry&)>& visit) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(limits.secs);
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
  if (error) fail(Code::kIo, operation, folder.string() + ": " + error.message());
  bool whole = true;
  for (int64_t entries = 0; at != fs::recursive_directory_iterator(); ++entries) {
    if (entries >= limits.entries || std::chrono::steady_clock::now() >= until) return false;
    check_interrupt(operation);
    std::error_code ignored;
    if (!at->is_symlink(ignored) && at->is_directory(ignored)) {
      if (at.depth() + 1 >= limits.depth) {
        at.disable_recursion_pending();
        whole = false;
      }
    } else {
      visit(*at);
    }
    at.increment(error);
    if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory ||
        error == std::errc::permission_denied)
      return false;  // the folder changes under our hands: what was seen is what there is
    if (error) fail(Code::kIo, operation, folder.string() + ": " + error.message());
  }
  return whole;
}

}  // namespace lockstep
