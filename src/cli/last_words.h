// An exception that nobody can catch - in a parallel region, a destructor, a thread - ends the program with words and
// its status for that failure, not with a signal.
#pragma once

namespace lockstep {

void install_last_words(int argc, char** argv);

}  // namespace lockstep
