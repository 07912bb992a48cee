// oneDNN writes its kernels into memory that it maps, and where the system gives it none it writes all the same. Its
// calls come through here: one that fails is tried again with what we can give back, and one that keeps failing ends
// the program with words.
#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string_view>

#include "base/error.h"
#include "cli/thread_waiting.h"

void lockstep::answer_for_onednn() {}

// The sanitizers have their own at this place.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if !defined(__has_feature)
#define __has_feature(feature) 0
#endif
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)

namespace {

using MapMemory = void* (*)(void*, size_t, int, int, int, off_t);

bool is_onednn(const void* caller) {
  Dl_info info{};
  return ::dladdr(caller, &info) != 0 && info.dli_fname && std::strstr(info.dli_fname, "libdnnl") != nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* mmap(void* at, size_t bytes, int protection, int flags, int fd,
                                                             off_t offset) noexcept {
  static const auto map = reinterpret_cast<MapMemory>(::dlsym(RTLD_NEXT, "mmap"));
  void* mapped = map(at, bytes, protection, flags, fd, offset);
  if (mapped != MAP_FAILED || !is_onednn(__builtin_return_address(0))) return mapped;
  ::malloc_trim(0);
  mapped = map(at, bytes, protection, flags, fd, offset);
  if (mapped != MAP_FAILED) return mapped;
  constexpr std::string_view kNoRoom =
      "lockstep: [memory] the system has no more memory to give for kernels; try a higher limit (ulimit -v)\n";
  static_cast<void>(!::write(STDERR_FILENO, kNoRoom.data(), kNoRoom.size()));
  ::_exit(lockstep::exit_status(lockstep::Code::kMemory));  // files are whole or absent, and runs are recovered
}

#endif
#endif
