// What `doctor` says about MLX on this machine.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep {

struct MlxReport {
  bool usable = false;
  std::string why;  // it cannot be used; empty when it can
  std::string version, device, leaf;
  bool gpu = false;  // false: MLX's CPU form, which is there to test with
  uint64_t total_bytes = 0;
};

MlxReport mlx_report();

}  // namespace lockstep
