// What `doctor` says about CUDA on this machine.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct CudaDeviceReport {
  std::string name;
  std::string capability;  // "9.0"
  uint64_t total_bytes = 0, free_bytes = 0;
  std::string why;  // it cannot be used; empty when it can
};

struct CudaReport {
  bool usable = false;
  std::string why;                              // nothing can be used; empty when something can
  std::string driver;                           // the CUDA version it supports, "13.0"; empty without one
  std::string leaf, cublaslt, cudnn;            // paths, empty where not found
  int cublaslt_version = 0, cudnn_version = 0;  // as the libraries say it: 130002, 91900
  std::vector<CudaDeviceReport> devices;
};

CudaReport cuda_report();

}  // namespace lockstep
