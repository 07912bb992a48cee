// What this machine and this build offer, as `lockstep doctor` tells it.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace lockstep {

struct CpuFacts {
  std::string model;
  std::vector<std::pair<std::string, bool>> features;  // usable: the CPU has it and the system saves its registers
  bool amx_in_leaf_7 = false, leaf_1d_visible = false;
  int cores = 0;
};
CpuFacts cpu_facts();

struct MemoryFacts {
  uint64_t total_bytes = 0, available_bytes = 0;
};
MemoryFacts memory_facts();

std::vector<std::pair<std::string, std::string>> library_versions();

struct PythonFacts {
  std::string path, version;  // empty: none found
};
Json doctor_json();  // all of it

PythonFacts python_facts();  // .venv of the working directory, else python3 of the PATH

}  // namespace lockstep
