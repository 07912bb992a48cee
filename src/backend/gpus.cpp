#include "backend/gpus.h"

#include "backend/cuda/report.h"
#include "backend/mlx/report.h"

namespace lockstep {

std::string first_gpu() {
  return mlx_report().gpu ? "mlx" : "cuda";
}

std::vector<std::string> usable_gpus() {
  if (mlx_report().gpu) return {"mlx"};
  std::vector<std::string> names;
  const CudaReport cuda = cuda_report();
  for (size_t i = 0; cuda.usable && i < cuda.devices.size(); ++i)
    if (cuda.devices[i].why.empty()) names.push_back("cuda:" + std::to_string(i));
  return names;
}

}  // namespace lockstep
