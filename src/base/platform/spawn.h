// What posix_spawn() is told in other words elsewhere, names of signals, and one thread's manners.
#pragma once
#include <signal.h>
#include <spawn.h>

#include <initializer_list>
#include <string>

namespace lockstep {

// A child gets the descriptors that `actions` give it so far, those of ours below `first` that are named in
// `inherited`, and no other. `flags`: for posix_spawnattr_setflags().
void hand_on_only(posix_spawn_file_actions_t& actions, short& flags, int first, std::initializer_list<int> inherited);

std::string name_of_signal(int number);  // "SIGSEGV"; "signal 77" where it has none

// A signal that this thread blocks and that waits for it is taken away, without waiting for one.
void take_pending_signal(const sigset_t& blocked);

// This thread, woken, waits for its turn instead of taking a core from one that computes.
void let_others_go_first();

}  // namespace lockstep
