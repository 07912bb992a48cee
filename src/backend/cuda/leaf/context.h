// A device opened by the leaf, with the libraries it uses there.
#pragma once
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <string>

#include "backend/cuda/leaf.h"

namespace lockstep::cuda {

class CublasLt;
class Cudnn;

inline constexpr int kStreams = 4;

struct Device {
  int index = 0;
  cudaDeviceProp properties{};
  cudaStream_t streams[kStreams] = {};
  std::shared_ptr<CublasLt> lt;  // null: not found
  std::shared_ptr<Cudnn> dnn;
};

Outcome failed(const char* what);
Outcome unsupported(const char* what);
Outcome checked(cudaError_t status, const char* what);

std::shared_ptr<CublasLt> open_cublaslt(const char* path, std::string& why);
std::shared_ptr<Cudnn> open_cudnn(const char* path, std::string& why);
int version_of(const CublasLt& lt);
int version_of(const Cudnn& dnn);

}  // namespace lockstep::cuda
