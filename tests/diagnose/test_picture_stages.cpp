// Stages of an autoencoder in the layout [batch, channels, frame, rows, columns]: convolutions, norms, resampling,
// moves along two axes. Each mistake in a form that the planted faults of the benchmark do not have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compare/comparison.h"
#include "diagnose/layout/layouts.h"
#include "support/synthetic.h"

namespace lockstep {
namespace {

using namespace synthetic;

constexpr int64_t kPictureRows = 9, kPictureColumns = 11, kInputs = 8, kOutputs = 6;

// Kernel [out, in, 3, 3, 3] over one frame: the last tap of time meets it, the others meet frames of zeros.
struct Convolved {
  Values x = noise({1, kInputs, 1, kPictureRows, kPictureColumns}, 1), w = noise({kOutputs, kInputs, 3, 3, 3}, 2),
         b = noise({kOutputs}, 3);

  struct How {
    int64_t tile = kPictureRows;  // rows of a tile that knows nothing of its neighbours
    std::vector<int64_t> taps = {2};
  };
  Values make(const Values& kernel, const Values& input, const How& how) const {
    Values y = make_values({1, kOutputs, 1, kPictureRows, kPictureColumns});
    for (int64_t o = 0; o < kOutputs; ++o)
      for (int64_t r = 0; r < kPictureRows; ++r)
        for (int64_t c = 0; c < kPictureColumns; ++c) {
          double sum = b.v[static_cast<size_t>(o)];
          for (int64_t i = 0; i < kInputs; ++i)
            for (const int64_t t : how.taps)
              for (int64_t k = 0; k < 9; ++k) {
                const int64_t row = r + k / 3 - 1, column = c + k % 3 - 1;
                if (row < 0 || row >= kPictureRows || column < 0 || column >= kPictureColumns ||
                    row / how.tile != r / how.tile)
                  continue;
                sum += static_cast<double>(kernel.v[static_cast<size_t>(((o * kInputs + i) * 3 + t) * 9 + k)]) *
                       input.v[static_cast<size_t>((i * kPictureRows + row) * kPictureColumns + column)];
              }
          y.v[static_cast<size_t>((o * kPictureRows + r) * kPictureColumns + c)] = static_cast<float>(sum);
        }
    return y;
  }
  std::string cause(const Values& kernel, const Values& input, const How& how) const {
    auto weights = std::make_shared<MemoryWeights>();
    weights->add("vae.conv.weight", w), weights->add("vae.conv.bias", b);
    RunMaker right, wrong;
    right.in("vae.conv", x).add("vae.conv", make(w, x, {}));
    wrong.in("vae.conv", x).add("vae.conv", make(kernel, input, how));
    return first_cause(right, wrong, weights);
  }
  std::string cause(const Values& kernel) const { return cause(kernel, x, {}); }
};

TEST(PictureStages, MemoryOfAKernel) {
  const Convolved conv;
  const auto laid_down = [&](const std::vector<int>& axes) { return reshaped(permuted(conv.w, axes), conv.w.shape); };
  EXPECT_EQ(conv.cause(laid_down({0, 2, 3, 4, 1})), "convolution.kernel_axes");
  EXPECT_EQ(conv.cause(laid_down({2, 3, 4, 0, 1})), "convolution.kernel_axes");
  const Values read = permuted(reshaped(conv.w, {3, 3, 3, kInputs, kOutputs}), {4, 3, 0, 1, 2});
  EXPECT_EQ(conv.cause(read), "convolution.kernel_axes");
}

// A model trained on single frames: nothing ever met its older taps. They give what a weight that was never loaded
// gives.
TEST(PictureStages, ATapOfZeros) {
  Convolved conv;
  for (size_t i = 0; i < conv.w.v.size(); ++i)
    if (i / 9 % 3 != 2) conv.w.v[i] = 0;
  EXPECT_EQ(conv.cause(conv.w, conv.x, {.taps = {1}}), "convolution.temporal_tap");
}

TEST(PictureStages, TapsAndTilesOfAConvolution) {
  const Convolved conv;
  EXPECT_EQ(conv.cause(conv.w, conv.x, {.taps = {0, 2}}), "convolution.temporal_tap");
  EXPECT_EQ(conv.cause(conv.w, conv.x, {.tile = 5}), "convolution.padding");
  // Two mistakes at once: tiles, and all taps.
  EXPECT_EQ(conv.cause(conv.w, conv.x, {.tile = kPictureRows, .taps = {0, 1, 2}}), "convolution.temporal_tap");
  Values mirrored = conv.w;
  for (size_t i = 0; i < mirrored.v.size(); i += 9)
    std::reverse(mirrored.v.begin() + static_cast<std::ptrdiff_t>(i),
                 mirrored.v.begin() + static_cast<std::ptrdiff_t>(i + 9));
  EXPECT_EQ(conv.cause(mirrored, conv.x, {.taps = {1}}), "convolution.kernel_mirrored");
}

TEST(PictureStages, InputAndNumbersOfAConvolution) {
  const Convolved conv;
  EXPECT_EQ(conv.cause(conv.w, mapped(conv.x, silu), {}), "activation.added");
  Values turned = conv.x;
  for (int64_t i = 0; i < kInputs; ++i)
    std::copy_n(conv.x.v.begin() + (i % 2 * (kInputs / 2) + i / 2) * kPictureRows * kPictureColumns,
                kPictureRows * kPictureColumns, turned.v.begin() + i * kPictureRows * kPictureColumns);
  EXPECT_EQ(conv.cause(conv.w, turned, {}), "convolution.input_order");
  Values coarse = conv.w;
  for (int64_t o = 0; o < kOutputs; ++o) {  // five bits, a scale for each output
    const auto begin = coarse.v.begin() + o * kInputs * 27;
    float largest = 0;
    std::for_each(begin, begin + kInputs * 27, [&](float v) { largest = std::max(largest, std::fabs(v)); });
    std::transform(begin, begin + kInputs * 27, begin,
                   [&](float v) { return std::nearbyint(v / largest * 15) * largest / 15; });
  }
  EXPECT_EQ(conv.cause(coarse), "convolution.weight_rounded");
  EXPECT_EQ(conv.cause(noise(conv.w.shape, 77)), "convolution.different_weight");  // drawn anew
}

// RMS over the channels of a pixel is right; the others take other numbers together.
TEST(PictureStages, NormsOfAPicture) {
  constexpr int64_t channels = 12, rows = 7, columns = 6;
  const Values x = mapped(noise({1, channels, 1, rows, columns}, 4), [](double v) { return v + 0.4; });
  const Values gamma = mapped(noise({channels, 1, 1, 1}, 5, 0.2f), [](double v) { return v + 1; });
  const auto normed = [&](auto&& same_group, bool centred) {
    Values y = x;
    const auto pixel = [&](int64_t i) { return i % (rows * columns); };
    for (int64_t i = 0; i < x.size(); ++i) {
      double sum = 0, squares = 0, n = 0;
      for (int64_t j = 0; j < x.size(); ++j)
        if (same_group(i / (rows * columns), pixel(i), j / (rows * columns), pixel(j))) {
          const double v = x.v[static_cast<size_t>(j)];
          sum += v, squares += v * v, ++n;
        }
      const double mean = centred ? sum / n : 0;
      y.v[static_cast<size_t>(i)] =
          static_cast<float>((x.v[static_cast<size_t>(i)] - mean) / std::sqrt(squares / n - mean * mean) *
                             gamma.v[static_cast<size_t>(i / (rows * columns))]);
    }
    return y;
  };
  const auto of_pixel = [](int64_t, int64_t p, int64_t, int64_t q) { return p == q; };
  auto weights = std::make_shared<MemoryWeights>();
  weights->add("vae.norm.gamma", gamma);
  const auto cause = [&](const Values& wrong) {
    RunMaker a, b;
    a.in("vae.norm", x).add("vae.norm", normed(of_pixel, false)), b.in("vae.norm", x).add("vae.norm", wrong);
    return first_cause(a, b, weights);
  };
  EXPECT_EQ(cause(normed([](int64_t a, int64_t, int64_t b, int64_t) { return a / 4 == b / 4; }, true)), "norm.kind");
  EXPECT_EQ(cause(normed([](int64_t a, int64_t, int64_t b, int64_t) { return a / 6 == b / 6; }, false)), "norm.axis");
  EXPECT_EQ(cause(normed([](int64_t a, int64_t p, int64_t b, int64_t q) { return a == b && p / 6 == q / 6; }, false)),
            "norm.axis");
}

TEST(PictureStages, RowsAndColumnsEnlargedOtherwise) {
  const Values x = noise({1, 3, 5, 6}, 6);
  const auto enlarged = [&](bool spaced_columns) {
    Values y = make_values({1, 3, 10, 12});
    for (int64_t i = 0; i < y.size(); ++i) {
      const int64_t column = i % 12, row = i / 12 % 10, plane = i / 120;
      if (!spaced_columns || column % 2 == 0)
        y.v[static_cast<size_t>(i)] = x.v[static_cast<size_t>((plane * 5 + row / 2) * 6 + column / 2)];
    }
    return y;
  };
  RunMaker a, b;
  a.in("vae.up", x).add("vae.up", enlarged(false)), b.in("vae.up", x).add("vae.up", enlarged(true));
  EXPECT_EQ(first_cause(a, b), "resample.kind");
}

TEST(PictureStages, MovesAlongTwoAxes) {
  const Values x = noise({1, 3, 8, 8}, 7);
  const auto moved = [&](auto&& from) {
    Values y = x;
    for (int64_t i = 0; i < x.size(); ++i) {
      const auto [row, column] = from(i / 8 % 8, i % 8);
      y.v[static_cast<size_t>(i)] = x.v[static_cast<size_t>(i / 64 * 64 + row * 8 + column)];
    }
    return y;
  };
  const auto id = [&](const Values& y) {
    const auto found = find_rearrangements("image", y, x, 1e-6);
    return found.empty() ? "" : std::string(found[0].id.id());
  };
  using At = std::pair<int64_t, int64_t>;
  EXPECT_EQ(id(moved([](int64_t r, int64_t c) { return At{7 - r, 7 - c}; })), "layout.reversed");
  EXPECT_EQ(id(moved([](int64_t r, int64_t c) { return At{(r + 4) % 8, (c + 4) % 8}; })), "layout.parts_exchanged");
  EXPECT_EQ(id(moved([](int64_t r, int64_t c) { return At{c, 7 - r}; })), "layout.reversed");  // a quarter turn
  EXPECT_EQ(id(noise(x.shape, 8)), "");
}

// Within each of four heads the halves of the channels come in turn, as rotary embeddings of another style want them.
TEST(PictureStages, MovesWithinParts) {
  const Values x = noise({1, 20, 48}, 9);
  const auto moved = [&](auto&& from) {
    Values y = x;
    for (int64_t t = 0; t < 20; ++t)
      for (int64_t i = 0; i < 48; ++i)
        y.row(t)[static_cast<size_t>(i)] = x.row(t)[static_cast<size_t>(i / 12 * 12 + from(i % 12))];
    return std::string(find_rearrangements("x", y, x, 1e-6)[0].id.id());
  };
  EXPECT_EQ(moved([](int64_t i) { return i % 2 * 6 + i / 2; }), "layout.interleaved");
  EXPECT_EQ(moved([](int64_t i) { return (i + 6) % 12; }), "layout.parts_exchanged");
  EXPECT_EQ(moved([](int64_t i) { return 11 - i; }), "layout.reversed");
}

TEST(PictureStages, ValuesInSteps) {
  const Values x = noise({1, 3, 10, 12}, 10);
  RunMaker a, b;
  a.in("vae.m", x).add("vae.m", x);
  b.in("vae.m", x).add("vae.m", mapped(x, [](double v) { return std::nearbyint(v * 127.5) / 127.5; }));
  EXPECT_EQ(first_cause(a, b), "precision.integer");
}

}  // namespace
}  // namespace lockstep
