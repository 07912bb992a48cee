#include <sched.h>

#include <cstring>
#include <ctime>

#include "base/platform/spawn.h"

namespace lockstep {

void hand_on_only(posix_spawn_file_actions_t& actions, short&, int first, std::initializer_list<int>) {
  posix_spawn_file_actions_addclosefrom_np(&actions, first);
}

std::string name_of_signal(int number) {
  const char* name = ::sigabbrev_np(number);
  return name ? std::string("SIG") + name : "signal " + std::to_string(number);
}

void take_pending_signal(const sigset_t& blocked) {
  const timespec at_once{};
  ::sigtimedwait(&blocked, nullptr, &at_once);
}

void let_others_go_first() {
  const sched_param none{};
  ::sched_setscheduler(0, SCHED_BATCH, &none);
}

}  // namespace lockstep
