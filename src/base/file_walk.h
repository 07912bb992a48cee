// Everything below a folder, within bounds: a path of the user's may name a whole disk.
#pragma once
#include <cstdint>
#include <functional>

#include "base/file.h"

namespace lockstep {

struct WalkLimits {
  int depth = 16;  // folders within folders
  int64_t entries = 1'000'000;
  double secs = 10;
};

// Calls `visit` for everything that is no folder. Links are not followed, folders that may not be read are left out,
// and the walk stops where check_interrupt does. False: something was left out because of the limits.
bool walk_files(const fs::path& folder, const WalkLimits& limits, const char* operation,
                const std::function<void(const fs::directory_entry&)>& visit);

}  // namespace lockstep
