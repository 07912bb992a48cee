#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

#include "base/platform/memory_maps.h"

namespace lockstep {
namespace {

void advise(const std::byte* from, size_t bytes, int advice) {
  constexpr uintptr_t kPage = 4096;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(from) / kPage * kPage,
                  end = reinterpret_cast<uintptr_t>(from) + bytes;
  ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

int reserve_bytes(int fd, size_t bytes) {
  return ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
}

void* map_shared(int fd, size_t bytes) {
  void* map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  return map == MAP_FAILED ? nullptr : map;
}

// Systems before Linux 5.14 do not know the request.
void fetch_pages(const std::byte* from, size_t bytes) {
#ifdef MADV_POPULATE_READ
  advise(from, bytes, MADV_POPULATE_READ);
#else
  (void)from, (void)bytes;
#endif
}

void expect_pages(const std::byte* from, size_t bytes) {
  advise(from, bytes, MADV_WILLNEED);
}

void give_back_pages(std::byte* from, size_t bytes) {
  ::madvise(from, bytes, MADV_DONTNEED);
}

std::filesystem::path memory_folder() {
  return "/dev/shm";
}

void give_back_freed_memory() {
  ::malloc_trim(0);
}

}  // namespace lockstep
