// A convolution with a kernel for each channel, done otherwise.
#include <gtest/gtest.h>

#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

struct EachItsKernel {
  static constexpr int64_t kChannels = 6, kSide = 10, kSize = 3;
  Values x = noise({1, kChannels, kSide, kSide}, 1), w = noise({kChannels, 1, kSize, kSize}, 2),
         b = noise({kChannels}, 3);

  // `place`: of the kernel's element (i, j) of a channel.
  template <typename Place>
  Values made(Place place, float bias = 1) const {
    Values out = make_values(x.shape);
    for (int64_t c = 0; c < kChannels; ++c)
      for (int64_t row = 0; row < kSide; ++row)
        for (int64_t column = 0; column < kSide; ++column) {
          double sum = bias * b.v[static_cast<size_t>(c)];
          for (int64_t i = 0; i < kSize; ++i)
            for (int64_t j = 0; j < kSize; ++j) {
              const int64_t y = row + i - 1, z = column + j - 1;
              if (y >= 0 && y < kSide && z >= 0 && z < kSide)
                sum += static_cast<double>(w.v[static_cast<size_t>(place(c, i, j))]) *
                       x.v[static_cast<size_t>((c * kSide + y) * kSide + z)];
            }
          out.v[static_cast<size_t>((c * kSide + row) * kSide + column)] = static_cast<float>(sum);
        }
    return out;
  }
  static int64_t own(int64_t c, int64_t i, int64_t j) { return (c * kSize + i) * kSize + j; }
  std::string cause(const Values& wrong) const {
    auto weights = std::make_shared<MemoryWeights>();
    weights->add("net.dw.weight", w), weights->add("net.dw.bias", b);
    RunMaker reference, candidate;
    reference.in("net.dw", x).add("net.dw", made(own));
    candidate.in("net.dw", x).add("net.dw", wrong);
    return first_cause(reference, candidate, weights);
  }
};

TEST(Depthwise, NamesWhatIsDoneOtherwise) {
  const EachItsKernel layer;
  const auto mirrored = [](int64_t c, int64_t i, int64_t j) { return EachItsKernel::own(c, 2 - i, 2 - j); };
  EXPECT_EQ(layer.cause(layer.made(mirrored)), "convolution.kernel_mirrored");
  EXPECT_EQ(layer.cause(layer.made([](int64_t c, int64_t i, int64_t j) { return EachItsKernel::own(c, j, i); })),
            "convolution.kernel_axes");
  EXPECT_EQ(
      layer.cause(layer.made([](int64_t c, int64_t i, int64_t j) { return EachItsKernel::own((c + 1) % 6, i, j); })),
      "convolution.kernel_axes");
  EXPECT_EQ(layer.cause(layer.made(mirrored, 2)), "convolution.kernel_mirrored");  // and the bias twice
}

TEST(Depthwise, IsSilentWhereNothingExplainsTheResult) {
  const EachItsKernel layer;
  EXPECT_EQ(layer.cause(noise(layer.x.shape, 9)), "");
}

}  // namespace
}  // namespace lockstep
