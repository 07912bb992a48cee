// What is odd about the weights of a checkpoint, found by looking at every value once.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "io/tensor_source.h"
#include "tensor/statistics.h"

namespace lockstep {

struct HealthFinding {
  enum class Severity { kError, kWarning, kNote };
  Severity severity;
  std::string check;  // stable id: nan, inf, all_zero, all_zero_bias, constant, odd_std, duplicate, denormal
  std::vector<std::string> tensors;
  std::string explanation;
};

std::string_view severity_name(HealthFinding::Severity severity);

struct CheckpointHealth {
  struct Entry {
    const TensorInfo* info;
    Statistics statistics;
  };
  std::vector<Entry> entries;
  std::vector<HealthFinding> findings;  // errors first
};

// `advance` is told the bytes of each tensor as it is done.
CheckpointHealth examine_checkpoint(const TensorSource& source, const std::vector<const TensorInfo*>& tensors,
                                    const std::function<void(int64_t)>& advance);

}  // namespace lockstep
