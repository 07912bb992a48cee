// An exception that nobody can catch - in a parallel region, a destructor, a thread - ends the program with words and
// its status for that failure, not with a signal.
#pragma once

namespace lockstep {

void install_last_words(int argc, char** argv);

// Where a failed assert() ends. assertion_*.cpp leads it here; take_assertions() does nothing by itself, and who calls
// it has that file linked.
[[noreturn]] void answer_for_assertion(const char* condition, const char* file, unsigned line);
void take_assertions();

}  // namespace lockstep
