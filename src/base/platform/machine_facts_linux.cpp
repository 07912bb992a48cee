#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/platform/machine_facts.h"
#include "base/strict_stream.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace lockstep {
namespace {

#if defined(__x86_64__)
struct CpuidLeaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidLeaf cpuid_leaf(unsigned leaf, unsigned sub = 0) {
  CpuidLeaf result;
  __get_cpuid_count(leaf, sub, &result.eax, &result.ebx, &result.ecx, &result.edx);
  return result;
}

bool bit(unsigned value, int at) {
  return (value >> at & 1) != 0;
}

// Which register sets the system saves: without it an instruction of the CPU still faults.
uint64_t enabled_states() {
  if (!bit(cpuid_leaf(1).ecx, 27)) return 0;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

void add_features(CpuFacts& facts) {
  constexpr uint64_t kYmm = 0x6, kZmm = 0xE6, kTiles = 0x60000;
  const uint64_t states = enabled_states();
  const bool ymm = (states & kYmm) == kYmm, zmm = (states & kZmm) == kZmm, tiles = (states & kTiles) == kTiles;
  const CpuidLeaf one = cpuid_leaf(1), seven = cpuid_leaf(7), seven_one = cpuid_leaf(7, 1);
  facts.features = {
      {"avx2", ymm && bit(seven.ebx, 5)},         {"fma", ymm && bit(one.ecx, 12)},
      {"f16c", ymm && bit(one.ecx, 29)},          {"avx512f", zmm && bit(seven.ebx, 16)},
      {"avx512bw", zmm && bit(seven.ebx, 30)},    {"avx512vl", zmm && bit(seven.ebx, 31)},
      {"avx512_vnni", zmm && bit(seven.ecx, 11)}, {"avx512_bf16", zmm && bit(seven_one.eax, 5)},
      {"avx512_fp16", zmm && bit(seven.edx, 23)}, {"amx_tile", tiles && bit(seven.edx, 24)},
      {"amx_int8", tiles && bit(seven.edx, 25)},  {"amx_bf16", tiles && bit(seven.edx, 22)},
  };
  facts.amx_in_leaf_7 = bit(seven.edx, 24);
  facts.leaf_1d_visible = __get_cpuid_max(0, nullptr) >= 0x1D && cpuid_leaf(0x1D).eax != 0;
}
#elif defined(__aarch64__)
void add_features(CpuFacts& facts) {
  const unsigned long one = ::getauxval(AT_HWCAP), two = ::getauxval(AT_HWCAP2);
  // The bits of asm/hwcap.h.
  facts.features = {{"neon", (one >> 1 & 1) != 0}, {"fp16", (one >> 10 & 1) != 0}, {"dotprod", (one >> 20 & 1) != 0},
                    {"sve", (one >> 22 & 1) != 0}, {"i8mm", (two >> 13 & 1) != 0}, {"bf16", (two >> 14 & 1) != 0}};
}
#else
void add_features(CpuFacts&) {}
#endif

std::string value_of(const char* file, const std::string& key) {
  std::ifstream in = strict_file(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

}  // namespace

CpuFacts cpu_facts() {
  CpuFacts facts;
  facts.model = value_of("/proc/cpuinfo", "model name");
  cpu_set_t usable;
  facts.cores = ::sched_getaffinity(0, sizeof(usable), &usable) == 0 ? CPU_COUNT(&usable) : 1;
  add_features(facts);
  return facts;
}

MemoryFacts memory_facts() {
  const auto bytes = [](const std::string& kilobytes) {
    return kilobytes.empty() ? 0 : std::stoull(kilobytes) * 1024;  // "24689884 kB"
  };
  return {bytes(value_of("/proc/meminfo", "MemTotal:")), bytes(value_of("/proc/meminfo", "MemAvailable:"))};
}

uint64_t resident_bytes() {
  unsigned long long size = 0, resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%llu %llu", &size, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

uint64_t bytes_of_peak(long ru_maxrss) {
  return static_cast<uint64_t>(ru_maxrss) * 1024;
}

uint64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return bytes_of_peak(usage.ru_maxrss);
}

uint64_t peak_that_children_inherit() {
  const std::string kilobytes = value_of("/proc/self/status", "VmHWM:");
  return std::strtoull(kilobytes.c_str(), nullptr, 10) * 1024;
}

int64_t memory_kills() {
  std::ifstream file = strict_file("/sys/fs/cgroup/memory.events");
  std::string name;
  int64_t count;
  while (file >> name >> count)
    if (name == "oom_kill") return count;
  return -1;
}

}  // namespace lockstep
