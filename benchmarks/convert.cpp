// Conversions of dtypes (bf16 to f32 first) as a share of the bandwidth of a plain read on the same threads.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "tensor/convert.h"

namespace lockstep {
namespace {

constexpr int64_t kElements = int64_t{1} << 27;
constexpr int64_t kChunk = int64_t{1} << 18;

template <typename Work>
double best_secs(const Work& work) {
  double best = 1e300;
  for (int i = 0; i < 7; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

uint64_t plain_read(const Tensor& tensor) {
  const auto bytes = tensor.contiguous_bytes();
  uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
  for (size_t at = 0; at < bytes.size(); at += 1 << 20) {
    const auto* words = reinterpret_cast<const uint64_t*>(bytes.data() + at);
    const size_t count = std::min<size_t>(1 << 20, bytes.size() - at) / 8;
    uint64_t lanes[8] = {};
    for (size_t i = 0; i + 8 <= count; i += 8)
      for (size_t lane = 0; lane < 8; ++lane) lanes[lane] += words[i + lane];
    for (const uint64_t lane : lanes) sum += lane;
  }
  return sum;
}

void convert(const Tensor& from, Tensor& to) {
  const auto* in = from.strided_data();
  auto* out = to.mutable_strided_data();
  const int64_t in_item = static_cast<int64_t>(dtype_bytes(from.dtype())),
                out_item = static_cast<int64_t>(dtype_bytes(to.dtype()));
#pragma omp parallel for schedule(static)
  for (int64_t at = 0; at < kElements; at += kChunk)
    convert_elements(in + at * in_item, from.dtype(), out + at * out_item, to.dtype(), kChunk);
}

void run() {
  Tensor floats = Tensor::zeros(DType::kF32, {kElements});
  for (int64_t i = 0; i < kElements; ++i) floats.mutable_data<float>()[i] = static_cast<float>(i % 4099) - 2000.5f;
  uint64_t sum = 0;
  const double read_gbps = static_cast<double>(floats.bytes()) / best_secs([&] { sum += plain_read(floats); }) / 1e9;
  fmt::print("{} threads; plain read {:.1f} GB/s ({})\n", omp_get_max_threads(), read_gbps, sum % 10);
  Tensor copy = Tensor::zeros(DType::kF32, {kElements});
  const double copy_secs = best_secs([&] {
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < kElements; at += kChunk)
      std::memcpy(copy.mutable_data<float>() + at, floats.data<float>() + at, kChunk * 4);
  });
  fmt::print("{:<18} {:6.1f} GB/s read and written = {:3.0f} % of the plain read\n", "memcpy",
             2 * static_cast<double>(floats.bytes()) / copy_secs / 1e9,
             2 * static_cast<double>(floats.bytes()) / copy_secs / 1e7 / read_gbps);
  for (const auto& [from, to] : {std::pair{DType::kBF16, DType::kF32}, std::pair{DType::kF32, DType::kBF16},
                                 std::pair{DType::kF16, DType::kF32}, std::pair{DType::kF32, DType::kF16},
                                 std::pair{DType::kF8E4M3, DType::kF32}, std::pair{DType::kU8, DType::kF32}}) {
    const Tensor in = floats.to(from);
    Tensor out = Tensor::zeros(to, {kElements});
    const double gb = static_cast<double>(in.bytes() + out.bytes()) / 1e9;
    const double secs = best_secs([&] { convert(in, out); });
    fmt::print("{:<18} {:6.1f} GB/s read and written = {:3.0f} % of the plain read{}\n",
               fmt::format("{} to {}", dtype_name(from), dtype_name(to)), gb / secs, 100 * gb / secs / read_gbps,
               from == DType::kBF16 ? " (goal 80 %)" : "");
  }
}

}  // namespace
}  // namespace lockstep

int main() {
  lockstep::run();
}
