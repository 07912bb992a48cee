#include "base/interrupt.h"

#include <csignal>

#include "base/error.h"

namespace lockstep {
namespace {
volatile std::sig_atomic_t interrupt_count = 0;

void on_interrupt(int) {
  interrupt_count = interrupt_count + 1;
  if (interrupt_count > 1) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
}
}  // namespace

void install_interrupt_handler() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
}

bool interrupted() {
  return interrupt_count > 0;
}

void check_interrupt(const char* operation) {
  if (interrupted()) fail(Code::kCancelled, operation, "interrupted");
}

}  // namespace lockstep
