#include <pthread.h>

#include <cctype>

#include "base/platform/spawn.h"

namespace lockstep {

// All are closed but what the actions mention.
void hand_on_only(posix_spawn_file_actions_t& actions, short& flags, int, std::initializer_list<int> inherited) {
  flags = static_cast<short>(flags | POSIX_SPAWN_CLOEXEC_DEFAULT);
  for (const int fd : inherited) posix_spawn_file_actions_addinherit_np(&actions, fd);
}

std::string name_of_signal(int number) {
  if (number <= 0 || number >= NSIG || !sys_signame[number]) return "signal " + std::to_string(number);
  std::string name = std::string("SIG") + sys_signame[number];
  for (char& letter : name) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return name;
}

void take_pending_signal(const sigset_t& blocked) {
  sigset_t pending;
  ::sigpending(&pending);
  for (int number = 1; number < NSIG; ++number)
    if (sigismember(&blocked, number) == 1 && sigismember(&pending, number) == 1) {
      int taken = 0;
      ::sigwait(&blocked, &taken);
      return;
    }
}

void let_others_go_first() {
  ::pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0);
}

}  // namespace lockstep
