// Ctrl-C: the first asks long work to stop at its next check, so that no file is left half written; the second ends the
// process.
#pragma once

namespace lockstep {

void install_interrupt_handler();
bool interrupted();
void check_interrupt(const char* operation);  // throws Error{kCancelled} after Ctrl-C

}  // namespace lockstep
