#include "cli/thread_waiting.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "base/platform/executable.h"

namespace lockstep {

namespace {

constexpr const char* kSpins = "GOMP_SPINCOUNT";
constexpr const char* kOurs = "LOCKSTEP_SPINS_SHORTLY";  // the program was started over
constexpr std::array<std::string_view, 4> kComputing{"generate", "edit", "serve", "batch"};

}  // namespace

void limit_spinning(int argc, char** argv) {
  if (std::getenv(kOurs)) {
    // OpenMP has read it. A program that is debugged or recorded spins as its author had it.
    ::unsetenv(kOurs);
    ::unsetenv(kSpins);
    return;
  }
  const bool computes = std::any_of(argv + std::min(argc, 1), argv + argc, [](const char* word) {
    return std::find(kComputing.begin(), kComputing.end(), word) != kComputing.end();
  });
  const bool chosen = std::getenv(kSpins) || std::getenv("OMP_WAIT_POLICY");
  if (!computes || chosen || ::sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
  if (own_program().filename().string().starts_with("ld-")) return;  // that is the loader
  ::setenv(kSpins, "10000", 0);
  ::setenv(kOurs, "1", 0);
  start_program_anew(argv);
  ::unsetenv(kOurs);  // it failed: the program goes on as it is
  ::unsetenv(kSpins);
}

}  // namespace lockstep
