// Room on a disk or in memory taken before it is used, and what the system is told about mapped pages.
#pragma once
#include <cstddef>
#include <filesystem>

namespace lockstep {

// All of a new file's bytes now. errno, 0 when it has them.
int reserve_bytes(int fd, size_t bytes);

// A file's bytes for reading and writing by whoever maps them, its pages there at once where the system can. Null and
// errno where it refuses.
void* map_shared(int fd, size_t bytes);

// A mapped file's pages, all at once rather than one fault after the other; nothing where the system cannot.
void fetch_pages(const std::byte* from, size_t bytes);
// Pages that will be read soon: the system may begin to fetch them, and nobody waits for it.
void expect_pages(const std::byte* from, size_t bytes);
// Pages that are not needed again soon: whole pages, which a mapped file can give back.
void give_back_pages(std::byte* from, size_t bytes);

// Where files are memory and no disk; empty: nowhere on this system.
std::filesystem::path memory_folder();

// What the allocator keeps of what was freed goes back to the system.
void give_back_freed_memory();

}  // namespace lockstep
