#include "backend/cuda/report.h"

#include "backend/cuda/device.h"
#include "backend/cuda/library.h"
#include "base/error.h"

namespace lockstep {

CudaReport cuda_report() {
  const cuda::Libraries& found = cuda::libraries();
  CudaReport report;
  report.why = found.why;
  if (found.driver_version > 0)
    report.driver =
        std::to_string(found.driver_version / 1000) + "." + std::to_string(found.driver_version % 1000 / 10);
  report.leaf = found.leaf_path;
  report.cublaslt = found.cublaslt_path;
  report.cudnn = found.cudnn_path;
  for (int i = 0; found.leaf && i < found.devices; ++i) {
    CudaDeviceReport device;
    try {
      const cuda::DeviceFacts facts = cuda::Device::open(i)->facts();
      device.name = facts.name;
      device.capability = std::to_string(facts.major) + "." + std::to_string(facts.minor);
      device.total_bytes = facts.total_bytes;
      device.free_bytes = facts.free_bytes;
      report.cublaslt_version = facts.cublaslt_version;
      report.cudnn_version = facts.cudnn_version;
      report.usable = true;
    } catch (const Error& e) {
      device.why = e.what();
      if (report.why.empty()) report.why = e.what();
    }
    report.devices.push_back(device);
  }
  if (report.usable) report.why.clear();
  return report;
}

}  // namespace lockstep
