#include "backend/devices.h"

#include <utility>

#include "backend/cuda/report.h"
#include "backend/mlx/report.h"

namespace lockstep {
namespace {

std::vector<UsableDevice> usable_cuda_devices() {
  std::vector<UsableDevice> all;
  const CudaReport cuda = cuda_report();
  for (size_t i = 0; cuda.usable && i < cuda.devices.size(); ++i) {
    const std::string number = std::to_string(i);
    if (cuda.devices[i].why.empty()) all.push_back({"cuda:" + number, "GPU " + number + ": " + cuda.devices[i].name});
  }
  return all;
}

}  // namespace

std::vector<UsableDevice> usable_devices() {
  std::vector<UsableDevice> all{{"cpu", "CPU"}, {"reference", "reference (slow, plain)"}};
  for (UsableDevice& device : usable_cuda_devices()) all.push_back(std::move(device));
  if (const MlxReport mlx = mlx_report(); mlx.usable)
    all.push_back({"mlx", mlx.gpu ? "MLX: " + mlx.device : "MLX (its CPU form, slow)"});
  return all;
}

std::string first_gpu() {
  return mlx_report().gpu ? "mlx" : "cuda";
}

std::vector<std::string> usable_gpus() {
  if (mlx_report().gpu) return {"mlx"};
  std::vector<std::string> names;
  for (UsableDevice& device : usable_cuda_devices()) names.push_back(std::move(device.name));
  return names;
}

}  // namespace lockstep
