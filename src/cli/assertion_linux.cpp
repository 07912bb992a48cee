// assert() of this program, ours or a library's, comes here instead of to the system's function.
#include "cli/last_words.h"

void lockstep::take_assertions() {}

extern "C" __attribute__((visibility("default"))) void __assert_fail(const char* condition, const char* file,
                                                                     unsigned line, const char*) noexcept {
  lockstep::answer_for_assertion(condition, file, line);
}
