#include "base/log.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>

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
  std::string line = fmt::format("[{:8.3f} s] {}: ", secs, operation);
  // Names come from files: a terminal must not be made to obey them.
  for (const char c : text) line += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);  // one call: notes of several threads do not mix
}

}  // namespace lockstep
