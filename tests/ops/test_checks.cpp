// Every operation refuses shapes and dtypes that do not fit, naming itself and both shapes, on both backends.
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "ops/attention.h"
#include "ops/convolution.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace lockstep {
namespace {

Tensor floats(const Shape& shape) {
  return Tensor::zeros(DType::kF32, shape);
}

struct Misuse {
  const char* words[3];  // all of them stand in the message; null: nothing more is asked
  std::function<void(Backend&)> call;
};

class OpsRefuse : public ::testing::TestWithParam<const char*> {
 protected:
  void expect_refused(const std::vector<Misuse>& misuses) {
    const std::unique_ptr<Backend> backend = make_backend(GetParam());
    for (const Misuse& misuse : misuses) {
      try {
        misuse.call(*backend);
        ADD_FAILURE() << "accepted: " << misuse.words[0] << " " << (misuse.words[1] ? misuse.words[1] : "");
      } catch (const Error& e) {
        EXPECT_EQ(exit_status(e.code()), 2) << e.what();
        for (const char* word : misuse.words)
          EXPECT_TRUE(!word || std::string(e.what()).find(word) != std::string::npos)
              << (word ? word : "") << " in: " << e.what();
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, OpsRefuse, ::testing::Values("cpu", "reference"),
                         [](const auto& info) { return std::string(info.param); });

LinearWeight weight(int64_t outputs, int64_t inputs) {
  LinearWeight weight;
  weight.weight = floats({outputs, inputs});
  return weight;
}

TEST_P(OpsRefuse, Linear) {
  LinearWeight biased = weight(3, 4);
  biased.bias = floats({5});
  const Tensor x = floats({1, 2, 4}), other = floats({1, 2, 7}), gate = floats({1, 3}), residual = floats({1, 2, 3});
  expect_refused({
      {{"[linear]", "expected 4", "[2, 5]"},
       [&](Backend& b) {
         ops::linear(b, floats({2, 5}), weight(3, 4));
       }},
      {{"[linear] bias", "[3]", "[5]"}, [&](Backend& b) { ops::linear(b, x, biased); }},
      {{"[linear] multiply", "[1, 2, 3]", "[1, 2, 7]"},
       [&](Backend& b) { ops::linear(b, x, weight(3, 4), {.multiply = &other}); }},
      {{"[linear] residual", "[1, 2, 3]", "[1, 2, 7]"},
       [&](Backend& b) { ops::linear(b, x, weight(3, 4), {.residual = &other}); }},
      {{"[linear] gate", "[1, 3]", "[1, 2, 7]"},
       [&](Backend& b) { ops::linear(b, x, weight(3, 4), {.residual = &residual, .gate = &other}); }},
      {{"[linear]", "gate without a residual"}, [&](Backend& b) { ops::linear(b, x, weight(3, 4), {.gate = &gate}); }},
  });
}

TEST_P(OpsRefuse, Attention) {
  const Tensor q = floats({1, 4, 6, 8}), k = floats({1, 5, 3, 8}), mask = Tensor::zeros(DType::kBool, {1, 4});
  expect_refused({
      {{"[attention]", "[4, 6, 8]"}, [&](Backend& b) { ops::attention(b, q.squeeze(0), k, k, {}); }},
      {{"[attention] k", "[1, 5, 3, 8]", "[1, 5, 3, 7]"},
       [&](Backend& b) {
         ops::attention(b, q, floats({1, 5, 3, 7}), k, {});
       }},
      {{"[attention] v", "[1, 5, 3, 8]", "[1, 6, 3, 8]"},
       [&](Backend& b) {
         ops::attention(b, q, k, floats({1, 6, 3, 8}), {});
       }},
      {{"[attention]", "a multiple of 4", "6"},
       [&](Backend& b) {
         ops::attention(b, q, floats({1, 5, 4, 8}), floats({1, 5, 4, 8}), {});
       }},
      {{"[attention] key mask", "[1, 5]", "[1, 4]"},
       [&](Backend& b) { ops::attention(b, q, k, k, {.key_mask = &mask}); }},
  });
}

TEST_P(OpsRefuse, Norms) {
  const Tensor x = floats({2, 3, 8}), heads = floats({1, 3, 2, 8}), odd = floats({1, 3, 2, 7});
  const Tensor turn = floats({3, 4}), short_turn = floats({2, 4}), narrow = floats({5});
  Tensor out = heads.clone(), odd_out = odd.clone(), small = floats({1, 3, 1, 8});
  expect_refused({
      {{"[rms_norm] weight", "[8]", "[5]"}, [&](Backend& b) { ops::rms_norm(b, x, narrow, 1e-6f); }},
      {{"[norm_modulate] shift", "[2, 8]", "[5]"},
       [&](Backend& b) { ops::norm_modulate(b, x, narrow, narrow, 1e-6f); }},
      {{"[channel_norm] gamma", "[8]", "[5]"}, [&](Backend& b) { ops::channel_norm(b, x, narrow, false); }},
      {{"[head_norm_rope] out", "[1, 3, 2, 8]", "[1, 3, 1, 8]"},
       [&](Backend& b) { ops::head_norm_rope(b, {.x = heads, .out = small}); }},
      {{"[head_norm_rope] weight", "[8]", "[5]"},
       [&](Backend& b) { ops::head_norm_rope(b, {.x = heads, .out = out, .weight = &narrow}); }},
      {{"[head_norm_rope] cos", "[3, 4]", "[2, 4]"},
       [&](Backend& b) {
         ops::head_norm_rope(
             b, {.x = heads, .out = out, .style = RopeStyle::kInterleaved, .cos = &short_turn, .sin = &turn});
       }},
      {{"[head_norm_rope]", "even head width"},
       [&](Backend& b) {
         ops::head_norm_rope(b, {.x = odd, .out = odd_out, .style = RopeStyle::kHalfSplit, .cos = &turn, .sin = &turn});
       }},
  });
}

TEST_P(OpsRefuse, Convolutions) {
  ConvWeight filter;
  filter.weight = floats({5, 4, 3, 3});
  const Tensor x = floats({1, 6, 6, 4}), residual = floats({1, 6, 6, 5});
  expect_refused({
      {{"[conv2d]", "4 channels", "[1, 6, 6, 3]"},
       [&](Backend& b) {
         ops::conv2d(b, floats({1, 6, 6, 3}), filter, 1, {});
       }},
      {{"[conv2d]", "[6, 6, 4]"}, [&](Backend& b) { ops::conv2d(b, x.squeeze(0), filter, 1, {}); }},
      {{"[conv2d]", "stride"}, [&](Backend& b) { ops::conv2d(b, x, filter, 0, {}); }},
      {{"[conv2d]", "negative"}, [&](Backend& b) { ops::conv2d(b, x, filter, 1, {.top = -1}); }},
      {{"[conv2d]", "larger than the padded image"},
       [&](Backend& b) {
         ops::conv2d(b, floats({1, 2, 6, 4}), filter, 1, {});
       }},
      {{"[conv2d] residual", "[1, 4, 4, 5]", "[1, 6, 6, 5]"},
       [&](Backend& b) { ops::conv2d(b, x, filter, 1, {}, &residual); }},
  });
}

TEST_P(OpsRefuse, Elementwise) {
  const Tensor x = floats({2, 3, 4}), gate = floats({2, 4}), table = floats({5, 4});
  const Tensor ids = Tensor::zeros(DType::kI64, {2}), far = Tensor::from<int64_t>({1}, {5});
  expect_refused({
      {{"[2, 3, 4]", "[2, 3, 5]"},
       [&](Backend& b) {
         ops::binary(b, BinaryOp::kAdd, x, floats({2, 3, 5}));
       }},
      {{"[add_gated] y", "[2, 3, 4]", "[2, 3, 5]"},
       [&](Backend& b) {
         ops::add_gated(b, x, gate, floats({2, 3, 5}));
       }},
      {{"[add_gated] gate", "[2, 4]", "[2, 3]"},
       [&](Backend& b) {
         ops::add_gated(b, x, floats({2, 3}), x);
       }},
      {{"[gather] ids", "i64", "f32"}, [&](Backend& b) { ops::gather(b, table, floats({2})); }},
      {{"[gather]", "2 axes", "[2, 3, 4]"}, [&](Backend& b) { ops::gather(b, x, ids); }},
      {{"[gather]", "0 to 4", "5"}, [&](Backend& b) { ops::gather(b, table, far); }},
      {{"[guidance] uncond", "[2, 3, 4]", "[2, 4]"}, [&](Backend& b) { ops::guidance(b, x, gate, 4); }},
      {{"[concat]", "[2, 3, 4]", "[2, 4]"}, [&](Backend& b) { ops::concat(b, x, gate, 1); }},
      {{"[concat]", "[2, 1, 4]", "[2, 1, 5]"},
       [&](Backend& b) {
         ops::concat(b, x, floats({2, 1, 5}), 1);
       }},
      {{"[copy]", "[2, 4]", "[2, 3, 4]"},
       [&](Backend& b) {
         ops::copy_into(b, x, floats({2, 4}));
       }},
  });
}

// A tensor that is not there is an error, not a crash, wherever it stands.
TEST_P(OpsRefuse, Nothing) {
  const Tensor none, x = floats({1, 2, 4});
  const LinearWeight empty;
  expect_refused({
      {{"[linear]"}, [&](Backend& b) { ops::linear(b, x, empty); }},
      {{"["}, [&](Backend& b) { ops::linear(b, none, weight(3, 4)); }},
      {{"["}, [&](Backend& b) { ops::unary(b, UnaryOp::kSilu, none); }},
      {{"["}, [&](Backend& b) { ops::binary(b, BinaryOp::kAdd, x, none); }},
      {{"["}, [&](Backend& b) { ops::rms_norm(b, x, none, 1e-6f); }},
      {{"["}, [&](Backend& b) { ops::attention(b, none, none, none, {}); }},
      {{"["}, [&](Backend& b) { ops::conv2d(b, none, {}, 1, {}); }},
      {{"["}, [&](Backend& b) { ops::cast(b, none, DType::kBF16); }},
  });
}

}  // namespace
}  // namespace lockstep
