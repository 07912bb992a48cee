#pragma once
#include "backend/backend.h"
#include "backend/cuda/device.h"

namespace lockstep::cuda {

// Work that runs as it is the first time, which tunes and builds what it needs, is captured into a graph the second
// time, and replayed from then on for inputs of the same shapes.
std::unique_ptr<Repeated> captured(std::shared_ptr<Device> device, Backend::Body body);

}  // namespace lockstep::cuda
