#include "pipeline/noise.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace lockstep {

TorchGenerator::TorchGenerator(uint64_t seed) {
  state_[0] = static_cast<uint32_t>(seed);
  for (uint32_t i = 1; i < kWords; ++i) state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
}

void TorchGenerator::refill() {
  constexpr size_t kShift = 397;
  const auto twist = [this](size_t i, size_t next, size_t far) {
    const uint32_t y = (state_[i] & 0x80000000u) | (state_[next] & 0x7FFFFFFFu);
    state_[i] = state_[far] ^ (y >> 1) ^ ((y & 1) != 0 ? 0x9908B0DFu : 0u);
  };
  for (size_t i = 0; i < kWords - kShift; ++i) twist(i, i + 1, i + kShift);
  for (size_t i = kWords - kShift; i < kWords - 1; ++i) twist(i, i + 1, i + kShift - kWords);
  twist(kWords - 1, 0, kShift - 1);
  at_ = 0;
}

uint32_t TorchGenerator::next() {
  if (at_ == kWords) refill();
  uint32_t y = state_[at_++];
  y ^= y >> 11;
  y ^= y << 7 & 0x9D2C5680u;
  y ^= y << 15 & 0xEFC60000u;
  return y ^ y >> 18;
}

double TorchGenerator::next_uniform() {
  const uint64_t high = next(), low = next();
  return static_cast<double>((high << 32 | low) & ((1ull << 53) - 1)) * 0x1p-53;
}

double TorchGenerator::next_normal() {
  if (second_normal_) {
    const double value = *second_normal_;
    second_normal_.reset();
    return value;
  }
  const double u1 = next_uniform(), u2 = next_uniform();
  const double radius = std::sqrt(-2.0 * std::log1p(-u2)), theta = 2.0 * std::numbers::pi * u1;
  second_normal_ = radius * std::sin(theta);
  return radius * std::cos(theta);
}

namespace {

constexpr size_t kGroup = 16;  // torch transforms sixteen uniforms at a time, eight radii and eight angles

float uniform_f32(TorchGenerator& generator) {
  return static_cast<float>(generator.next() & 0xFFFFFFu) * 0x1p-24f;
}

// torch's vector code takes the logarithm, sine and cosine from the polynomials of the Cephes library in single
// precision, every multiply-add fused. The same steps in the same order give the same bits; std::log and the like
// differ in one value of six. Where a product is added outside std::fma it is exact, so that a compiler that fuses it
// changes nothing.

float cephes_log(float x) {  // 2^-24 <= x <= 1
  constexpr float kSqrtHalf = 0.707106781186547524f;
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kSeries[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                               -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                               2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
  const auto bits = std::bit_cast<uint32_t>(x);
  float exponent = static_cast<float>(static_cast<int32_t>(bits >> 23) - 126);
  float m = std::bit_cast<float>((bits & 0x807FFFFFu) | 0x3F000000u);  // in [0.5, 1)
  if (m < kSqrtHalf) {
    exponent -= 1.0f;
    m = (m - 1.0f) + m;
  } else {
    m -= 1.0f;
  }
  const float square = m * m;
  float y = kSeries[0];
  for (size_t i = 1; i < std::size(kSeries); ++i) y = std::fma(y, m, kSeries[i]);
  y = std::fma(y * m, square, exponent * kLn2Low);
  y -= square * 0.5f;
  return (m + y) + exponent * kLn2High;
}

struct SinCos {
  float sin, cos;
};

SinCos cephes_sincos(float x) {  // 0 <= x < 2 pi
  constexpr float kFourOverPi = 1.27323954473516f;
  // pi / 4 in three parts, the first two short enough for exact products
  constexpr float kQuarter1 = -0.78515625f, kQuarter2 = -2.4187564849853515625e-4f,
                  kQuarter3 = -3.77489497744594108e-8f;
  const int octant = (static_cast<int>(x * kFourOverPi) + 1) & ~1;
  const auto turns = static_cast<float>(octant);
  x = std::fma(turns, kQuarter1, x);
  x = std::fma(turns, kQuarter2, x);
  x = std::fma(turns, kQuarter3, x);
  const float square = x * x;
  float cosine = std::fma(2.443315711809948e-5f, square, -1.388731625493765e-3f);
  cosine = std::fma(cosine, square, 4.166664568298827e-2f);
  cosine = std::fma(cosine * square, square, -(square * 0.5f)) + 1.0f;
  float sine = std::fma(-1.9515295891e-4f, square, 8.3321608736e-3f);
  sine = std::fma(sine, square, -1.6666654611e-1f);
  sine = std::fma(sine * square, x, x);
  if ((octant & 2) != 0) std::swap(sine, cosine);
  if ((octant & 4) != 0) sine = -sine;
  if (((octant - 2) & 4) == 0) cosine = -cosine;
  return {sine, cosine};
}

// Sixteen uniforms become sixteen normals. Adding zero turns -0 into 0, as torch's "times one plus zero" does.
void transform(float* group) {
  constexpr float kTwoPi = static_cast<float>(2 * std::numbers::pi);
  for (size_t i = 0; i < kGroup / 2; ++i) {
    const float radius = std::sqrt(-2.0f * cephes_log(1.0f - group[i]));
    const SinCos angle = cephes_sincos(kTwoPi * group[i + kGroup / 2]);
    group[i] = radius * angle.cos + 0.0f;
    group[i + kGroup / 2] = radius * angle.sin + 0.0f;
  }
}

void transform(double* group) {  // torch has no vector code for doubles
  for (size_t i = 0; i < kGroup / 2; ++i) {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - group[i]));
    const double theta = 2.0 * std::numbers::pi * group[i + kGroup / 2];
    group[i] = radius * std::cos(theta) + 0.0;
    group[i + kGroup / 2] = radius * std::sin(theta) + 0.0;
  }
}

// All uniforms first, then the groups; a rest that fills no group is redrawn as part of a last, overlapping one.
template <typename T, typename Uniform>
void fill(std::span<T> out, const Uniform& uniform) {
  for (T& value : out) value = uniform();
  for (size_t at = 0; at + kGroup <= out.size(); at += kGroup) transform(out.data() + at);
  if (out.size() % kGroup == 0) return;
  const std::span<T> last = out.last(kGroup);
  for (T& value : last) value = uniform();
  transform(last.data());
}

// The half types draw group by group in f32 and round: with a rest, the last group follows the whole ones directly.
void fill_halves(std::span<float> out, TorchGenerator& generator) {
  const auto draw = [&generator](float* group) {
    for (size_t i = 0; i < kGroup; ++i) group[i] = uniform_f32(generator);
    transform(group);
  };
  for (size_t at = 0; at + kGroup <= out.size(); at += kGroup) draw(out.data() + at);
  if (out.size() % kGroup != 0) draw(out.last(kGroup).data());
}

}  // namespace

Tensor torch_randn(const Shape& shape, DType dtype, TorchGenerator& generator) {
  if (dtype != DType::kF32 && dtype != DType::kF64 && dtype != DType::kF16 && dtype != DType::kBF16)
    fail(Code::kUnsupported, "noise", "no random numbers of this type",
         {.expected = "f32, f64, f16 or bf16", .got = std::string(dtype_name(dtype))});
  const auto count = static_cast<size_t>(checked_numel(shape));
  if (dtype == DType::kF64) {
    Tensor values = Tensor::empty(DType::kF64, shape);
    const std::span<double> out(values.mutable_data<double>(), count);
    if (count < kGroup) {
      for (double& value : out) value = generator.next_normal();
    } else {
      fill(out, [&generator] { return generator.next_uniform(); });
    }
    return values;
  }
  Tensor values = Tensor::empty(DType::kF32, shape);
  const std::span<float> out(values.mutable_data<float>(), count);
  if (count < kGroup) {
    for (float& value : out) value = static_cast<float>(generator.next_normal());
  } else if (dtype == DType::kF32) {
    fill(out, [&generator] { return uniform_f32(generator); });
  } else {
    fill_halves(out, generator);
  }
  return values.to(dtype);
}

}  // namespace lockstep
