// How the program's threads wait for each other.
#pragma once

namespace lockstep {

// Starts the program over with OpenMP told to spin for microseconds instead of milliseconds, once, and only for
// commands that compute. A thread that spins at a barrier keeps a busy machine from the thread it waits for (two loops
// beside it: a picture of the embedded model in 0.87 s, with this in 0.45 s); in the server it keeps a core from the
// threads that answer. OpenMP reads its environment before main() begins, hence the new start; what was set for it is
// taken out again then.
void limit_spinning(int argc, char** argv);

// A thread that OpenMP cannot start ends the program with our words and our status. It does nothing by itself: who
// calls it has the library's calls linked through thread_failure_linux.cpp.
void answer_for_openmp();

// The same for memory that oneDNN maps for its kernels: map_failure_linux.cpp.
void answer_for_onednn();

}  // namespace lockstep
