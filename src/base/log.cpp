#include "base/log.h"

#include <atomic>
#include <chrono>

#include "base/text.h"

namespace lockstep {
namespace {

std::atomic<bool> verbose_on{false};
const auto kStart = std::chrono::steady_clock::now();

}  // namespace

void set_verbose(bool on) {
  verbose_on.store(on, std::memory_order_relaxed);
}

bool verbose() {
  return verbose_on.load(std::memory_order_relaxed);
}

void write_note(std::string_view operation, std::string_view text) {
  const double secs = std::chrono::duration<double>(std::chrono::steady_clock::now() - kStart).count();
  print_error("[{:8.3f} s] {}: {}\n", secs, operation, text);
}

}  // namespace lockstep
