// Where a program's time and memory go, by module and stage, as its processes have written it
// (python/lockstep/profiler.py) or as our engine has (cli/engine_profile.h).
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace lockstep {

struct ProfiledCall {
  int32_t name = 0, parent = -1;  // indices into names and calls; a parent stands before its children
  int64_t thread = 0, begin_ns = 0, end_ns = 0, cpu_ns = 0;
  int64_t allocated = 0, live_before = 0, live_after = 0, peak = 0;  // bytes
  bool evaluation = false;                                           // of a lazy graph
  int64_t wall_ns() const { return end_ns - begin_ns; }
};

struct ProcessProfile {
  int64_t pid = 0, begin_ns = 0, end_ns = 0, cpu_ns = 0, left_out = 0, evaluations = 0;
  std::string memory;  // what was counted: "heap", "resident", "tensors" or "none"
  std::vector<std::string> names, frameworks;
  std::vector<ProfiledCall> calls;  // in the order in which they began
};

// Of all calls with one name, or of one stage. Totals count a call once, not again inside itself.
struct ProfileSum {
  std::string name;
  int depth = 0;  // of a stage in the table of stages
  int64_t calls = 0, wall_ns = 0, self_ns = 0, cpu_ns = 0, cpu_self_ns = 0, allocated = 0, peak = 0, evaluation_ns = 0;
};

struct FlameNode {
  std::string name;
  int64_t calls = 0, wall_ns = 0, self_ns = 0, cpu_ns = 0, allocated = 0, peak = 0;
  std::vector<FlameNode> inner;  // in the order in which they began first
};

struct ProgramProfile {
  std::vector<ProcessProfile> processes;  // the one with most calls first
  const ProcessProfile& first() const { return processes.front(); }
};

ProgramProfile read_profile(const fs::path& run);  // Error{kNotFound} where the run holds none
void write_profile(const fs::path& run, const ProcessProfile& profile);

FlameNode flame_of(const ProcessProfile& profile);                  // the root is the whole process
std::vector<ProfileSum> modules_of(const ProcessProfile& profile);  // longest self time first
// The outermost calls, and inside those that hold nearly everything the next: what a reader would call stages.
std::vector<ProfileSum> stages_of(const ProcessProfile& profile);
int64_t first_step_ns(const ProcessProfile& profile);  // from the start to the end of the first step; 0: there are none
int64_t evaluation_ns(const ProcessProfile& profile);
int64_t peak_bytes(const ProcessProfile& profile);

struct MemoryPoint {
  int64_t at_ns = 0, bytes = 0;
};
std::vector<MemoryPoint> memory_curve(const ProcessProfile& profile, size_t most);  // from the process's start

Json json_from(const ProgramProfile& profile);
std::string profile_page(const ProgramProfile& profile, const std::string& title);  // one HTML file
std::string chrome_trace(const ProgramProfile& profile);

// Two programs stage by stage. What stands in one alone has calls 0 in the other.
struct ProfilePair {
  std::string name;
  ProfileSum reference, candidate;
};
struct ProfileComparison {
  std::vector<ProfilePair> stages;   // by what they are: "text encoder", "transformer", "vae", ...
  std::vector<ProfilePair> modules;  // of the same name on both sides, largest loss first
  ProfileSum reference, candidate;   // the whole
};
std::string stage_of(std::string_view name);
ProfileComparison compare_profiles(const ProgramProfile& reference, const ProgramProfile& candidate);
Json json_from(const ProfileComparison& comparison);

}  // namespace lockstep
