#include <fcntl.h>
#include <malloc/malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/platform/memory_maps.h"

namespace lockstep {

int reserve_bytes(int fd, size_t bytes) {
  fstore_t room{};
  room.fst_flags = F_ALLOCATECONTIG | F_ALLOCATEALL;
  room.fst_posmode = F_PEOFPOSMODE;
  room.fst_length = static_cast<off_t>(bytes);
  if (::fcntl(fd, F_PREALLOCATE, &room) != 0) {
    room.fst_flags = F_ALLOCATEALL;  // in pieces, then
    if (::fcntl(fd, F_PREALLOCATE, &room) != 0) return errno;
  }
  return ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

void* map_shared(int fd, size_t bytes) {
  void* map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return nullptr;
  ::madvise(map, bytes, MADV_WILLNEED);
  return map;
}

void fetch_pages(const std::byte* from, size_t bytes) {
  const uintptr_t page = static_cast<uintptr_t>(::getpagesize()),
                  begin = reinterpret_cast<uintptr_t>(from) / page * page,
                  end = reinterpret_cast<uintptr_t>(from) + bytes;
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

void expect_pages(const std::byte* from, size_t bytes) {
  fetch_pages(from, bytes);
}

void give_back_pages(std::byte* from, size_t bytes) {
  ::madvise(from, bytes, MADV_DONTNEED);
}

std::filesystem::path memory_folder() {
  return {};
}

void give_back_freed_memory() {
  ::malloc_zone_pressure_relief(nullptr, 0);
}

}  // namespace lockstep
