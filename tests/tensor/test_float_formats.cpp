// Every 8- and 16-bit pattern, and f32 patterns around every rounding boundary, on every instruction set of this
// machine.
#include "tensor/float_formats.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstring>
#include <vector>

#include "tensor/convert.h"
#include "tensor/naive_formats.h"

namespace lockstep {
namespace {

// Runs `check` once for each instruction set that Highway may choose here.
template <typename Check>
void on_every_target(const Check& check) {
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t left = supported; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    check();
  }
  hwy::SetSupportedTargetsForTest(0);
}

template <typename Bits>
std::vector<Bits> all_patterns() {
  std::vector<Bits> patterns(size_t{1} << (8 * sizeof(Bits)));
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<Bits>(i);
  return patterns;
}

bool is_nan_bits(uint32_t bits) {
  return (bits & 0x7FFFFFFFu) > 0x7F800000u;
}

template <typename Bits, typename Decode>
void check_widening(DType dtype, const Decode& decode) {
  const std::vector<Bits> patterns = all_patterns<Bits>();
  on_every_target([&] {
    std::vector<float> out(patterns.size());
    convert_elements(patterns.data(), dtype, out.data(), DType::kF32, static_cast<int64_t>(out.size()));
    for (size_t i = 0; i < patterns.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(decode(patterns[i]))) << std::hex << i;
    // Odd starts and lengths take the code for the last few.
    for (int64_t count = 0; count < 70; ++count) {
      std::vector<float> part(static_cast<size_t>(count) + 1, -7.0f);
      convert_elements(patterns.data() + 1, dtype, part.data(), DType::kF32, count);
      ASSERT_EQ(std::memcmp(part.data(), out.data() + 1, static_cast<size_t>(count) * 4), 0) << count;
      ASSERT_EQ(part.back(), -7.0f) << "wrote past the end at " << count;
    }
  });
}

TEST(FloatFormats, EveryPatternWidens) {
  check_widening<uint8_t>(DType::kF8E4M3, naive::decode<4, 3, true>);
  check_widening<uint8_t>(DType::kF8E5M2, naive::decode<5, 2, false>);
  check_widening<uint16_t>(DType::kBF16,
                           [](uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); });
  check_widening<uint16_t>(DType::kF16, [](uint16_t bits) {
    const float value = naive::decode<5, 10, false>(bits);
    if (!std::isnan(value)) return value;
    return std::bit_cast<float>((bits & 0x8000u) << 16 | 0x7FC00000u | (bits & 0x3FFu) << 13);
  });
}

// Each of the 2^16 upper halves with lower halves at, beside and between all rounding boundaries of all formats.
std::vector<float> f32_patterns() {
  std::vector<uint16_t> lows = {0,      1,      2,      0x0FFE, 0x0FFF, 0x1000, 0x1001, 0x1FFF, 0x2000,
                                0x2FFF, 0x3000, 0x3001, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF};
  for (uint32_t x = 12345; lows.size() < 32; x = x * 1664525 + 1013904223)
    lows.push_back(static_cast<uint16_t>(x >> 16));
  std::vector<float> patterns;
  for (uint32_t high = 0; high < 0x10000; ++high)
    for (const uint16_t low : lows) patterns.push_back(std::bit_cast<float>(high << 16 | low));
  return patterns;
}

template <typename Bits, typename Encode>
void check_narrowing(DType dtype, const Encode& encode) {
  static const std::vector<float> patterns = f32_patterns();
  std::vector<Bits> expected;
  for (const float x : patterns) expected.push_back(static_cast<Bits>(encode(x)));
  on_every_target([&] {
    std::vector<Bits> out(patterns.size());
    convert_elements(patterns.data(), DType::kF32, out.data(), dtype, static_cast<int64_t>(out.size()));
    for (size_t i = 0; i < patterns.size(); ++i)
      ASSERT_EQ(out[i], expected[i]) << std::hex << std::bit_cast<uint32_t>(patterns[i]);
    for (int64_t count = 0; count < 70; ++count) {
      std::vector<Bits> part(static_cast<size_t>(count) + 1, Bits{0x5A});
      convert_elements(patterns.data() + 1, DType::kF32, part.data(), dtype, count);
      ASSERT_EQ(std::memcmp(part.data(), out.data() + 1, static_cast<size_t>(count) * sizeof(Bits)), 0);
      ASSERT_EQ(part.back(), Bits{0x5A}) << "wrote past the end at " << count;
    }
  });
}

TEST(FloatFormats, FloatsNarrowAtEveryBoundary) {
  check_narrowing<uint8_t>(DType::kF8E4M3, naive::encode<4, 3, true>);
  check_narrowing<uint8_t>(DType::kF8E5M2, naive::encode<5, 2, false>);
  check_narrowing<uint16_t>(DType::kBF16, [](float x) { return naive::encode<8, 7, false>(x); });
  check_narrowing<uint16_t>(DType::kF16, [](float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return naive::encode<5, 10, false>(x) | (is_nan_bits(bits) ? bits >> 13 & 0x3FFu : 0u);
  });
}

TEST(FloatFormats, EverySmallValueSurvivesTheWayThroughEveryWiderFormat) {
  for (const DType small : {DType::kF8E4M3, DType::kF8E5M2})
    for (const DType wide : {DType::kF16, DType::kF32, DType::kF64}) {
      const std::vector<uint8_t> patterns = all_patterns<uint8_t>();
      std::vector<double> there(patterns.size());  // room for the widest
      std::vector<uint8_t> back(patterns.size());
      const int64_t n = static_cast<int64_t>(patterns.size());
      convert_elements(patterns.data(), small, there.data(), wide, n);
      convert_elements(there.data(), wide, back.data(), small, n);
      for (size_t i = 0; i < patterns.size(); ++i) {
        const bool nan = std::isnan(element_as_double(reinterpret_cast<const std::byte*>(&patterns[i]), small));
        if (!nan) {
          EXPECT_EQ(back[i], patterns[i]) << dtype_name(small) << " " << dtype_name(wide);
        }
      }
    }
}

TEST(FloatFormats, TheScalarFunctionsAgreeWithTheVectors) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t pattern = static_cast<uint16_t>(bits);
    float vector_result = 0;
    convert_elements(&pattern, DType::kF16, &vector_result, DType::kF32, 1);
    ASSERT_EQ(std::bit_cast<uint32_t>(float_from(Half{pattern})), std::bit_cast<uint32_t>(vector_result));
    const float x = std::bit_cast<float>(bits << 16 | 0x1000u);
    uint16_t narrow = 0;
    convert_elements(&x, DType::kF32, &narrow, DType::kF16, 1);
    ASSERT_EQ(half_from(x).bits, narrow);
    uint8_t eight = 0;
    convert_elements(&x, DType::kF32, &eight, DType::kF8E4M3, 1);
    ASSERT_EQ(float8_e4m3_from(x).bits, eight);
    convert_elements(&x, DType::kF32, &eight, DType::kF8E5M2, 1);
    ASSERT_EQ(float8_e5m2_from(x).bits, eight);
  }
}

}  // namespace
}  // namespace lockstep
