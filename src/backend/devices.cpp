#include "backend/devices.h"

#include "backend/cuda/report.h"
#include "backend/mlx/report.h"

namespace lockstep {

std::vector<UsableDevice> usable_devices() {
  std::vector<UsableDevice> all{{"cpu", "CPU"}, {"reference", "reference (slow, plain)"}};
  const CudaReport cuda = cuda_report();
  for (size_t i = 0; cuda.usable && i < cuda.devices.size(); ++i) {
    const std::string number = std::to_string(i);
    if (cuda.devices[i].why.empty()) all.push_back({"cuda:" + number, "GPU " + number + ": " + cuda.devices[i].name});
  }
  if (const MlxReport mlx = mlx_report(); mlx.usable)
    all.push_back({"mlx", mlx.gpu ? "MLX: " + mlx.device : "MLX (its CPU form, slow)"});
  return all;
}

}  // namespace lockstep
