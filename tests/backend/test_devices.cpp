#include <gtest/gtest.h>

#include "backend/backend.h"
#include "backend/cuda/report.h"
#include "base/error.h"

namespace lockstep::testing {
namespace {

TEST(Devices, WithoutCudaTheReasonIsSaid) {
  const CudaReport report = cuda_report();
  if (report.usable) GTEST_SKIP() << "CUDA can be used here";
  EXPECT_FALSE(report.why.empty());
  for (const char* name : {"cuda", "cuda:0", "cuda:7"}) {
    try {
      make_backend(name);
      FAIL() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kDevice);
      EXPECT_EQ(exit_status(e.code()), 3);
      EXPECT_NE(std::string(e.what()).find(report.why), std::string::npos) << e.what();
    }
  }
}

TEST(Devices, OddNamesAreRefused) {
  for (const char* name : {"cuda:", "cuda:x", "cuda:-1", "cuda:1234", "gpu", ""}) {
    try {
      make_backend(name);
      FAIL() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kBadInput) << name;
    }
  }
}

TEST(Devices, HostBackendsAllocateHostMemoryAndUploadNothing) {
  for (const char* name : {"cpu", "reference"}) {
    const std::unique_ptr<Backend> backend = make_backend(name);
    const Tensor made = backend->allocate(DType::kF32, {2, 3});
    EXPECT_TRUE(made.on_host());
    EXPECT_EQ(backend->upload(made).strided_data(), made.strided_data());
    int runs = 0;
    const std::unique_ptr<Repeated> repeated = backend->repeated([&](const std::vector<Tensor>& inputs) {
      ++runs;
      return inputs[0];
    });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(repeated->run({made}).strided_data(), made.strided_data());
    EXPECT_EQ(runs, 3);
  }
}

}  // namespace
}  // namespace lockstep::testing
