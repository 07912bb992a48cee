// GPUs of this machine, by the names that make_backend() takes.
#pragma once
#include <string>
#include <vector>

namespace lockstep {

// The one to try first, whether it can be used or not: trying says why it cannot.
std::string first_gpu();

// All that can be used, each opened once to know.
std::vector<std::string> usable_gpus();

}  // namespace lockstep
