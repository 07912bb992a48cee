// What is odd in a recorded run by itself, without another one to compare it with.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "capture/run_reader.h"

namespace lockstep {

struct RunFinding {
  enum class Severity { kError, kWarning };
  Severity severity = Severity::kWarning;
  // Stable id: not_finite, near_overflow, denormal, constant, equal_rows, dead_channels, saturated, dtype, range,
  // uniform_head, collapsed_head, raw_memory, growing_graph, shared_memory.
  std::string check;
  TensorKey key;  // where it shows first
  Role role = Role::kOutput;
  Where where;
  std::string explanation, hint;
  int64_t others = 0;  // further tensors of which the same is true
};

// One module's attention, as it was seen while the program ran.
struct AttentionSeen {
  std::string name;
  Where where;
  Shape q, k, v;  // [batch, heads, tokens, head size]
  int64_t calls = 0;
  struct Head {
    double entropy = 0;  // share of the largest possible: 1 is uniform
    double sink = 0;     // share of the first key
  };
  std::vector<Head> heads;  // means over calls
};

struct RunHealth {
  int64_t records = 0, looked_into = 0;  // looked_into: whose values were kept
  std::vector<AttentionSeen> attention;  // of record --health
  std::vector<RunFinding> findings;      // in the order in which the program came there
};

RunHealth examine_run(const Run& run);
void add_watched(const Run& run, RunHealth& health);  // what record --health noted in the program

std::string component_of_record(const std::string& name);

// What the largest value of a stage may be before it is odd: diffusion transformers carry tens of millions in their
// residual stream, and latents never do.
double largest_usual(std::string_view name);

Json json_from(const RunHealth& health, const Run& run);

}  // namespace lockstep
