#include "cli/thread_waiting.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "base/platform/executable.h"

namespace lockstep {

void limit_spinning(int argc, char** argv) {
  bool computes = false;
  for (int i = 1; i < argc; ++i) computes = computes || std::string_view(argv[i]) == "generate";
  const bool chosen = std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY");
  if (!computes || chosen || ::sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
  if (own_program().filename().string().starts_with("ld-")) return;  // that is the loader
  ::setenv("GOMP_SPINCOUNT", "10000", 0);
  start_program_anew(argv);  // returns only when it failed: then the program goes on as it is
}

}  // namespace lockstep
