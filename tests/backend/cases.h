// Random tensors and the comparison of two backends' results.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "backend/backend.h"
#include "backend/staged.h"
#include "backend/tolerances.h"
#include "tensor/convert.h"

namespace lockstep::testing {

inline Backend& reference() {
  static const std::unique_ptr<Backend> backend = make_backend("reference");
  return *backend;
}

// The backend under test: the CPU's, or what LOCKSTEP_TEST_BACKEND names. A device is given copies of every tensor.
inline Backend& fast() {
  static const std::unique_ptr<Backend> backend = [] {
    const char* named = std::getenv("LOCKSTEP_TEST_BACKEND");
    std::unique_ptr<Backend> made = make_backend(named ? named : "cpu");
    return made->allocate(DType::kF32, {1}).on_host() ? std::move(made) : staged(std::move(made));
  }();
  return *backend;
}

inline bool on_a_device() {
  return std::getenv("LOCKSTEP_TEST_BACKEND") != nullptr;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  Tensor tensor(DType dtype, const Shape& shape, float scale = 1, float mean = 0) {
    Tensor values = Tensor::empty(DType::kF32, shape);
    std::normal_distribution<float> normal(mean, scale);
    float* to = values.mutable_data<float>();
    for (int64_t i = 0; i < values.numel(); ++i) to[i] = normal(engine_);
    return values.to(dtype);
  }
  int64_t integer(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  uint32_t bits() { return static_cast<uint32_t>(engine_()); }

 private:
  std::mt19937_64 engine_;
};

// Empty when `got` agrees with `expected`, else what differs. NaN and infinities must stand at the same places.
inline std::string difference(const Tensor& expected, const Tensor& got, const Tolerance& tolerance) {
  if (expected.shape() != got.shape()) return "shapes differ";
  const std::vector<double> e = to_doubles(expected), g = to_doubles(got);
  double squares = 0, wrong = 0;
  for (const double x : e)
    if (std::isfinite(x)) squares += x * x;
  const double rms = e.empty() ? 0 : std::sqrt(squares / static_cast<double>(e.size()));
  for (size_t i = 0; i < e.size(); ++i) {
    const auto at = [&] {
      return "element " + std::to_string(i) + ": expected " + std::to_string(e[i]) + ", got " + std::to_string(g[i]);
    };
    if (std::isnan(e[i]) || std::isnan(g[i])) {
      if (std::isnan(e[i]) != std::isnan(g[i])) return at();
      continue;
    }
    if (std::isinf(e[i]) || std::isinf(g[i])) {
      if (e[i] != g[i]) return at();
      continue;
    }
    const double error = std::fabs(e[i] - g[i]);
    if (error > tolerance.element * (std::fabs(e[i]) + rms))
      return at() + " (rms " + std::to_string(rms) + ", allowed " + std::to_string(tolerance.element) + ")";
    wrong += error * error;
  }
  const double relative = squares > 0 ? std::sqrt(wrong / squares) : std::sqrt(wrong);
  if (e.size() >= 16 && relative > tolerance.relative_l2)
    return "relative L2 " + std::to_string(relative * 1e6) + "e-6, allowed " +
           std::to_string(tolerance.relative_l2 * 1e6) + "e-6";
  return {};
}

inline void expect_close(const Tensor& expected, const Tensor& got, const Tolerance& tolerance,
                         const std::string& what) {
  EXPECT_EQ(difference(expected, got, tolerance), "") << what;
}

// Runs the same call on both backends, each into its own output.
template <typename Call>
void expect_agreement(DType out_dtype, const Shape& out_shape, const Tolerance& tolerance, const std::string& what,
                      Call&& call) {
  Tensor expected = Tensor::zeros(out_dtype, out_shape), got = Tensor::zeros(out_dtype, out_shape);
  call(reference(), expected);
  call(fast(), got);
  expect_close(expected, got, tolerance, what);
}

inline std::string label(DType dtype) {
  return std::string(dtype_name(dtype));
}

class ByDType : public ::testing::TestWithParam<DType> {};
inline std::string dtype_label(const ::testing::TestParamInfo<DType>& info) {
  return label(info.param);
}
#define LOCKSTEP_FOR_DTYPES(Suite) \
  INSTANTIATE_TEST_SUITE_P(Floats, Suite, ::testing::Values(DType::kF32, DType::kBF16, DType::kF16), dtype_label)

}  // namespace lockstep::testing
