// A library's calls cannot be led through the program there: where the system starts no more threads, OpenMP ends the
// program with words of its own.
#include "cli/thread_waiting.h"

void lockstep::answer_for_openmp() {}
