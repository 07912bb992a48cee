// Convolutions over a sequence, and over patches that do not overlap.
#include <gtest/gtest.h>

#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

// [channels, length], in the layout of PyTorch; a kernel of `kSize` taps that moves by `stride`, with `before` zeros.
struct OverASequence {
  static constexpr int64_t kIn = 5, kOut = 6, kLength = 14, kSize = 3;
  Values x = noise({1, kIn, kLength}, 1), w = noise({kOut, kIn, kSize}, 2), b = noise({kOut}, 3);

  Values made(int64_t stride, int64_t before, bool mirrored = false) const {
    Values out = make_values({1, kOut, kLength / stride});
    for (int64_t o = 0; o < kOut; ++o)
      for (int64_t at = 0; at < out.last(); ++at) {
        double sum = b.v[static_cast<size_t>(o)];
        for (int64_t i = 0; i < kIn; ++i)
          for (int64_t k = 0; k < kSize; ++k) {
            const int64_t from = at * stride + k - before, tap = mirrored ? kSize - 1 - k : k;
            if (from >= 0 && from < kLength)
              sum += static_cast<double>(w.v[static_cast<size_t>((o * kIn + i) * kSize + tap)]) *
                     x.v[static_cast<size_t>(i * kLength + from)];
          }
        out.v[static_cast<size_t>(o * out.last() + at)] = static_cast<float>(sum);
      }
    return out;
  }
  std::string cause(const Values& right, const Values& wrong) const {
    auto weights = std::make_shared<MemoryWeights>();
    weights->add("net.conv.weight", w), weights->add("net.conv.bias", b);
    RunMaker reference, candidate;
    reference.in("net.conv", x).add("net.conv", right);
    candidate.in("net.conv", x).add("net.conv", wrong);
    return first_cause(reference, candidate, weights);
  }
};

TEST(SequenceConvolutions, NameWhatIsDoneOtherwise) {
  const OverASequence layer;
  for (const int64_t stride : {1, 2}) {
    EXPECT_EQ(layer.cause(layer.made(stride, 1), layer.made(stride, 1, true)), "convolution.kernel_mirrored");
    EXPECT_EQ(layer.cause(layer.made(stride, 1), layer.made(stride, 0)), "convolution.padding");
    EXPECT_EQ(layer.cause(layer.made(stride, 2), layer.made(stride, 1)), "convolution.padding");  // sees the past alone
  }
}

TEST(SequenceConvolutions, ChannelsLastAreNoOtherShape) {
  const OverASequence layer;
  EXPECT_EQ(layer.cause(layer.made(1, 1), permuted(layer.made(1, 1, true), {0, 2, 1})), "convolution.kernel_mirrored");
}

// Two pictures of 3 channels in patches of 4 x 4, as a vision transformer takes them.
TEST(SequenceConvolutions, PatchesOfAPictureInAnotherOrderOfChannels) {
  const int64_t channels = 3, side = 16, patch = 4, out_channels = 10, places = side / patch;
  const Values x = noise({2, channels, side, side}, 1), w = noise({out_channels, channels, patch, patch}, 2);
  const auto made = [&](bool reversed) {
    Values out = make_values({2, out_channels, places, places});
    for (int64_t to = 0; to < out.size(); ++to) {
      const int64_t column = to % places, row = to / places % places, o = to / places / places % out_channels,
                    item = to / places / places / out_channels;
      double sum = 0;
      for (int64_t i = 0; i < channels; ++i)
        for (int64_t k = 0; k < patch * patch; ++k) {
          const int64_t from = reversed ? channels - 1 - i : i;
          sum += static_cast<double>(w.v[static_cast<size_t>((o * channels + i) * patch * patch + k)]) *
                 x.v[static_cast<size_t>(((item * channels + from) * side + row * patch + k / patch) * side +
                                         column * patch + k % patch)];
        }
      out.v[static_cast<size_t>(to)] = static_cast<float>(sum);
    }
    return out;
  };
  auto weights = std::make_shared<MemoryWeights>();
  weights->add("net.patches.weight", w);
  RunMaker reference, candidate;
  reference.in("net.patches", x).add("net.patches", made(false));
  candidate.in("net.patches", x).add("net.patches", made(true));
  EXPECT_EQ(first_cause(reference, candidate, weights), "convolution.input_order");
}

}  // namespace
}  // namespace lockstep
