// Bits that torch 2.13 draws; tests/python/test_noise.py compares millions of values with the installed torch.
#include "pipeline/noise.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "base/error.h"

namespace lockstep {
namespace {

std::vector<uint32_t> bits_of(const Tensor& tensor) {
  std::vector<uint32_t> bits;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    if (tensor.dtype() == DType::kF32) bits.push_back(std::bit_cast<uint32_t>(tensor.data<float>()[i]));
    if (tensor.dtype() == DType::kBF16) bits.push_back(tensor.data<BFloat16>()[i].bits);
    if (tensor.dtype() == DType::kF16) bits.push_back(tensor.data<Half>()[i].bits);
  }
  return bits;
}

std::vector<uint32_t> draw(uint64_t seed, const Shape& shape, DType dtype = DType::kF32) {
  TorchGenerator generator(seed);
  return bits_of(torch_randn(shape, dtype, generator));
}

using Bits = std::vector<uint32_t>;

TEST(Noise, MersenneTwister) {
  EXPECT_EQ(TorchGenerator(5489).next(), 3499211612u);
  TorchGenerator generator(42);
  for (const uint32_t expected : {1608637542u, 3421126067u, 4083286876u, 787846414u})
    EXPECT_EQ(generator.next(), expected);
  TorchGenerator ten_thousand(5489);
  for (int i = 1; i < 10000; ++i) ten_thousand.next();
  EXPECT_EQ(ten_thousand.next(), 4123659995u);  // the value the C++ standard prescribes for std::mt19937
}

TEST(Noise, OnlyTheLowBitsOfTheSeedCount) {
  EXPECT_EQ(draw(42, {32}), draw(42 + (7ull << 32), {32}));
}

TEST(Noise, WholeGroups) {
  EXPECT_EQ(draw(0, {16}), (Bits{0xBF901B85u, 0xBF93808Au, 0xBE804BD6u, 0xBEDE255Du, 0x3F594515u, 0x3F312783u,
                                 0xBEA1CC6Du, 0xC0075FC1u, 0x3EA50138u, 0xBFA1B4F4u, 0x3EB330FFu, 0x3E9DC3BBu,
                                 0x3DF56F77u, 0x3F9E6B93u, 0x3F8EF28Eu, 0xBE7D367Cu}));
  const Bits latents = draw(42, {1, 16, 1, 128, 128});  // of a 1024x1024 picture; shape does not matter
  EXPECT_EQ(Bits(latents.begin(), latents.begin() + 4), (Bits{0x3FF6A529u, 0x3FBE5F53u, 0x3F669567u, 0xC006C0DBu}));
  EXPECT_EQ(Bits(latents.end() - 4, latents.end()), (Bits{0xBFA68914u, 0x3F1BAC95u, 0xBFE19145u, 0xC015152Cu}));
}

TEST(Noise, AQuarterOfAMillionValues) {
  // Weighted by place: one wrong bit anywhere shows. An unfused product in the logarithm changes 50 values of these.
  const Bits bits = draw(123, {1 << 18});
  uint64_t sum = 0;
  for (size_t i = 0; i < bits.size(); ++i) sum += (i + 1) * bits[i];
  EXPECT_EQ(sum, 17833307137174854264ull);
}

TEST(Noise, ARestIsRedrawnWithTheGroupBeforeIt) {
  EXPECT_EQ(draw(0, {17}), (Bits{0xBF901B85u, 0xBFD91446u, 0x3F111004u, 0x3F4B235Du, 0x3F194D8Bu, 0xBFC70D5Bu,
                                 0xBEAEC6CAu, 0x3FED2F4Eu, 0x3EEFAA55u, 0xBF15E32Bu, 0xBE318EEBu, 0x3E3BE1A4u,
                                 0x3FB1D6C0u, 0x3FCB0D00u, 0x3F72409Cu, 0xBF57FB33u, 0x3F6E8C30u}));
}

TEST(Noise, HalfTypesDrawGroupByGroup) {
  EXPECT_EQ(draw(5, {18}, DType::kBF16),
            (Bits{0x3FEC, 0x3F05, 0x4032, 0x3F9C, 0xBEAC, 0xBF77, 0xBE05, 0xBF1A, 0x3E14, 0xBE19, 0xBEE0, 0x3F47,
                  0xBD6F, 0xC002, 0x3FBE, 0x3EFD, 0x3E7F, 0x3FE0}));
  EXPECT_EQ(draw(5, {18}, DType::kF16), (Bits{0x3F5F, 0x3827, 0x418F, 0x3CE3, 0xB562, 0xBBB8, 0xB026, 0xB8D0, 0x30A4,
                                              0xB0CB, 0xB700, 0x3A3C, 0xAB78, 0xC010, 0x3DEF, 0x37E8, 0x33FA, 0x3EFD}));
  TorchGenerator a(11), b(11);
  EXPECT_EQ(bits_of(torch_randn({64}, DType::kBF16, a)), bits_of(torch_randn({64}, DType::kF32, b).to(DType::kBF16)));
}

TEST(Noise, FewValues) {
  EXPECT_EQ(draw(0, {8}), (Bits{0x3FC53F5Cu, 0xBE963C50u, 0xC00B7149u, 0x3F1184B6u, 0xBF8AD1A1u, 0xBFB3052Du,
                                0x3ECE837Au, 0x3F5688E5u}));
}

TEST(Noise, TheSecondNormalOfAPairWaits) {
  TorchGenerator generator(9);
  EXPECT_EQ(bits_of(torch_randn({3}, DType::kF32, generator)), (Bits{0x3D373439u, 0x3FF4A37Bu, 0xBE6C935Du}));
  EXPECT_EQ(bits_of(torch_randn({16}, DType::kF32, generator).slice(0, 0, 2)), (Bits{0xBF78AA5Du, 0xBF165784u}));
  EXPECT_EQ(bits_of(torch_randn({2}, DType::kF32, generator)), (Bits{0x3EB11D7Fu, 0xBF56B28Du}));
}

TEST(Noise, OtherTypesAreRefused) {
  TorchGenerator generator(0);
  EXPECT_THROW(torch_randn({16}, DType::kI32, generator), Error);
  EXPECT_EQ(torch_randn({0, 4}, DType::kF32, generator).numel(), 0);
}

}  // namespace
}  // namespace lockstep
