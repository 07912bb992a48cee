// assert() of this program, ours or a header's, comes here instead of to the system's function; that of a library does
// not, since libraries there find their functions where they were linked to.
#include <cassert>

#include "cli/last_words.h"

void lockstep::take_assertions() {}

// Declared by the system, as one that does not return.
extern "C" __attribute__((visibility("default"))) void __assert_rtn(const char*, const char* file, int line,
                                                                    const char* condition) {
  lockstep::answer_for_assertion(condition, file, static_cast<unsigned>(line));
}
