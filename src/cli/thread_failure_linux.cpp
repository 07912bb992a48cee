// OpenMP ends the program with status 1 and words of its own where the system starts no more threads or gives it no
// memory, and there is no way to ask it beforehand. Its calls come through here: a thread that does not start is tried
// again, and what keeps failing is an error of ours like any other. Status 1 would say that two things differ.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "cli/thread_waiting.h"

void lockstep::answer_for_openmp() {}

// The sanitizers have their own at this place.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if !defined(__has_feature)
#define __has_feature(feature) 0
#endif
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)

namespace {

using CreateThread = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

bool is_openmp(const void* caller) {
  Dl_info info{};
  return ::dladdr(caller, &info) != 0 && info.dli_fname && std::strstr(info.dli_fname, "libgomp") != nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*work)(void*), void* argument) noexcept {
  static const auto create = reinterpret_cast<CreateThread>(::dlsym(RTLD_NEXT, "pthread_create"));
  int error = create(thread, attributes, work, argument);
  if (error == 0 || !is_openmp(__builtin_return_address(0))) return error;
  for (int attempt = 0; attempt < 5 && error == EAGAIN; ++attempt) {
    ::usleep(2000);
    error = create(thread, attributes, work, argument);
  }
  if (error == 0) return 0;
  constexpr std::string_view kWords =
      "lockstep: [threads] the system starts no more threads; try a higher limit (ulimit -u, ulimit -v), or fewer "
      "threads (OMP_NUM_THREADS=1)\n";
  static_cast<void>(!::write(STDERR_FILENO, kWords.data(), kWords.size()));
  std::exit(lockstep::exit_status(lockstep::Code::kMemory));
}

extern "C" __attribute__((visibility("default"))) void exit(int status) noexcept {
  if (is_openmp(__builtin_return_address(0))) {
    constexpr std::string_view kWords =
        "lockstep: [memory] the system has no more memory to give; try a higher limit (ulimit -v), or fewer threads "
        "(OMP_NUM_THREADS=1)\n";
    static_cast<void>(!::write(STDERR_FILENO, kWords.data(), kWords.size()));
    ::_exit(lockstep::exit_status(lockstep::Code::kMemory));  // other threads may be anywhere
  }
  reinterpret_cast<void (*)(int)>(::dlsym(RTLD_NEXT, "exit"))(status);
  __builtin_unreachable();
}

#endif
#endif
