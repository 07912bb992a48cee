// Cores and memory of this machine and of this process.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct CpuFacts {
  std::string model;
  std::vector<std::pair<std::string, bool>> features;   // usable: the CPU has it and the system saves its registers
  bool amx_in_leaf_7 = false, leaf_1d_visible = false;  // of x86-64 alone
  int cores = 0;                                        // that this process may use
};
CpuFacts cpu_facts();

struct MemoryFacts {
  uint64_t total_bytes = 0, available_bytes = 0;
};
MemoryFacts memory_facts();

uint64_t resident_bytes();       // of this process, now
uint64_t peak_resident_bytes();  // of this process, so far
// Of the same, as a child inherits it where the system counts our memory as its own until it runs; 0: it does not.
uint64_t peak_that_children_inherit();
uint64_t bytes_of_peak(long ru_maxrss);  // getrusage() counts in other units elsewhere

// How often the system has killed for want of memory in our control group; -1 where it does not say.
int64_t memory_kills();

}  // namespace lockstep
