// The picture that a command makes, as arguments of the official pipeline (python/lockstep/reference.py).
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct OfficialPicture {
  std::string model, dtype = "f32", device = "cpu";
  std::optional<std::string> prompt, negative_prompt;
  uint64_t seed = 0;
  int steps = 0;
  double guidance = 1, strength = -1;                                               // strength below 0: not given
  int width = 0, height = 0, layers = 0, resolution = 0, condition_resolution = 0;  // 0: not given
  std::vector<std::string> pictures;
  std::string mask;
};

std::vector<std::string> official_arguments(const OfficialPicture& picture);

}  // namespace lockstep
