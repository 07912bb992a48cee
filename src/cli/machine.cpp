#include "cli/machine.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <omp.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "base/file.h"
#include "base/strict_stream.h"

namespace lockstep {
namespace {

struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf cpuid(unsigned leaf, unsigned sub = 0) {
  Leaf result;
  __get_cpuid_count(leaf, sub, &result.eax, &result.ebx, &result.ecx, &result.edx);
  return result;
}

bool bit(unsigned value, int at) {
  return (value >> at & 1) != 0;
}

// Which register sets the system saves: without it an instruction of the CPU still faults.
uint64_t enabled_states() {
  if (!bit(cpuid(1).ecx, 27)) return 0;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

std::string value_of(const char* file, const std::string& key) {
  std::ifstream in = strict_file(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

// The first line a program prints. No shell: the path may hold anything.
std::string first_line_of(const std::string& program, const char* argument) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    ::execlp(program.c_str(), program.c_str(), argument, static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text(256, '\0');
  const ssize_t got = child > 0 ? ::read(ends[0], text.data(), text.size()) : 0;
  ::close(ends[0]);
  int status = 1;
  if (child > 0) ::waitpid(child, &status, 0);
  text.resize(status == 0 && got > 0 ? static_cast<size_t>(got) : 0);
  return text.substr(0, text.find('\n'));
}

}  // namespace

CpuFacts cpu_facts() {
  CpuFacts facts;
  facts.model = value_of("/proc/cpuinfo", "model name");
  cpu_set_t usable;
  facts.cores = ::sched_getaffinity(0, sizeof(usable), &usable) == 0 ? CPU_COUNT(&usable) : 1;
  constexpr uint64_t kYmm = 0x6, kZmm = 0xE6, kTiles = 0x60000;
  const uint64_t states = enabled_states();
  const bool ymm = (states & kYmm) == kYmm, zmm = (states & kZmm) == kZmm, tiles = (states & kTiles) == kTiles;
  const Leaf one = cpuid(1), seven = cpuid(7), seven_one = cpuid(7, 1);
  facts.features = {
      {"avx2", ymm && bit(seven.ebx, 5)},         {"fma", ymm && bit(one.ecx, 12)},
      {"f16c", ymm && bit(one.ecx, 29)},          {"avx512f", zmm && bit(seven.ebx, 16)},
      {"avx512bw", zmm && bit(seven.ebx, 30)},    {"avx512vl", zmm && bit(seven.ebx, 31)},
      {"avx512_vnni", zmm && bit(seven.ecx, 11)}, {"avx512_bf16", zmm && bit(seven_one.eax, 5)},
      {"avx512_fp16", zmm && bit(seven.edx, 23)}, {"amx_tile", tiles && bit(seven.edx, 24)},
      {"amx_int8", tiles && bit(seven.edx, 25)},  {"amx_bf16", tiles && bit(seven.edx, 22)},
  };
  facts.amx_in_leaf_7 = bit(seven.edx, 24);
  facts.leaf_1d_visible = __get_cpuid_max(0, nullptr) >= 0x1D && cpuid(0x1D).eax != 0;
  return facts;
}

MemoryFacts memory_facts() {
  const auto bytes = [](const std::string& kilobytes) {
    return kilobytes.empty() ? 0 : std::stoull(kilobytes) * 1024;  // "24689884 kB"
  };
  return {bytes(value_of("/proc/meminfo", "MemTotal:")), bytes(value_of("/proc/meminfo", "MemAvailable:"))};
}

PythonFacts python_facts() {
  std::error_code error;
  for (const std::string path : {".venv/bin/python", "python3"}) {
    if (path.find('/') != std::string::npos && !fs::exists(path, error)) continue;
    const std::string version = first_line_of(path, "--version");
    if (!version.empty()) return {path, version};
  }
  return {};
}

}  // namespace lockstep
