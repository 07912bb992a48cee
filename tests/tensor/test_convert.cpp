#include "tensor/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

template <typename To, typename From>
std::vector<To> converted(std::initializer_list<From> values) {
  const Tensor tensor = Tensor::from<From>({static_cast<int64_t>(values.size())}, values).to(DTypeOf<To>::kValue);
  return {tensor.data<To>(), tensor.data<To>() + tensor.numel()};
}

TEST(Convert, FloatsToIntegersTruncateAndSaturate) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  EXPECT_EQ((converted<int8_t, float>({1.9f, -1.9f, 127.5f, 1e9f, -1e9f, inf, -inf, nan})),
            (std::vector<int8_t>{1, -1, 127, 127, -128, 127, -128, 0}));
  EXPECT_EQ((converted<uint64_t, float>({-1.0f, 0.5f, 1.8446744e19f, 1e30f})),
            (std::vector<uint64_t>{0, 0, UINT64_MAX, UINT64_MAX}));
  EXPECT_EQ((converted<int64_t, double>({9.2233720368547758e18, -9.3e18})),
            (std::vector<int64_t>{INT64_MAX, INT64_MIN}));
  EXPECT_EQ((converted<int32_t, float>({2147483520.0f, 2147483648.0f})), (std::vector<int32_t>{2147483520, INT32_MAX}));
}

TEST(Convert, BoolIsNotZeroWhateverTheByte) {
  const Tensor small = Tensor::from<float>({4}, {0.0f, -0.0f, 1e-30f, std::nanf("")}).to(DType::kBool);
  EXPECT_EQ(to_floats(small), (std::vector<float>{0, 0, 1, 1}));
  const uint8_t odd[] = {0, 1, 2, 255};
  float out[4];
  convert_elements(odd, DType::kBool, out, DType::kF32, 4);
  EXPECT_EQ(std::vector<float>(out, out + 4), (std::vector<float>{0, 1, 1, 1}));
  EXPECT_EQ(element_as_double(reinterpret_cast<const std::byte*>(odd + 2), DType::kBool), 1.0);
}

TEST(Convert, EveryPairOfDtypesKeepsSmallIntegers) {
  for (int a = 0; a < kDTypeCount; ++a)
    for (int b = 0; b < kDTypeCount; ++b) {
      const Tensor ones = Tensor::from<float>({3}, {0, 1, 1});
      const Tensor there = ones.to(static_cast<DType>(a)).to(static_cast<DType>(b));
      EXPECT_EQ(there.dtype(), static_cast<DType>(b));
      EXPECT_EQ(to_doubles(there), (std::vector<double>{0, 1, 1})) << a << " " << b;
    }
}

TEST(Convert, LargeArraysAreSplitWithoutSeams) {
  const int64_t n = (1 << 20) + 77;  // threaded, with a last chunk of odd length
  Tensor values = Tensor::empty(DType::kF32, {n});
  for (int64_t i = 0; i < n; ++i) values.mutable_data<float>()[i] = static_cast<float>(i % 2048);
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kI32, DType::kF64}) {
    const Tensor back = values.to(dtype).to(DType::kF32);
    for (int64_t i = 0; i < n; ++i) {
      const float expected = dtype == DType::kBF16 ? float_from(bfloat16_from(static_cast<float>(i % 2048)))
                                                   : static_cast<float>(i % 2048);
      ASSERT_EQ(back.data<float>()[i], expected) << i << " " << dtype_name(dtype);
    }
  }
}

}  // namespace
}  // namespace lockstep
