// The devices of this machine that a picture can be drawn on, under the names that make_backend() takes.
#pragma once
#include <string>
#include <vector>

namespace lockstep {

struct UsableDevice {
  std::string name, words;  // "cuda:0", "GPU 0: NVIDIA H200"
};

std::vector<UsableDevice> usable_devices();  // the processor first

// The GPU to try first, whether it can be used or not: trying says why it cannot.
std::string first_gpu();

// All GPUs that can be used, each opened once to know.
std::vector<std::string> usable_gpus();

}  // namespace lockstep
