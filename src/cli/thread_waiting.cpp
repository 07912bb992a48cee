#include "cli/thread_waiting.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "base/file.h"

namespace lockstep {

void limit_spinning(int argc, char** argv) {
  bool computes = false;
  for (int i = 1; i < argc; ++i) computes = computes || std::string_view(argv[i]) == "generate";
  const bool chosen = std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY");
  if (!computes || chosen || ::sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
  std::error_code none;
  if (fs::read_symlink("/proc/self/exe", none).filename().string().starts_with("ld-")) return;  // that is the loader
  ::setenv("GOMP_SPINCOUNT", "10000", 0);
  ::execv("/proc/self/exe", argv);  // returns only when it failed: then the program goes on as it is
}

}  // namespace lockstep
