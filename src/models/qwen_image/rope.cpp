#include "models/qwen_image/rope.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lockstep::models {
namespace {

constexpr int64_t kTableEnd = 4096;  // the official table holds positions -4096 to 4095

// 1 / 10000^(2j/d), each operation rounded to f32 as torch does.
std::vector<float> axis_frequencies(int64_t size) {
  std::vector<float> frequencies;
  for (int64_t j = 0; j < size; j += 2)
    frequencies.push_back(1.0f / static_cast<float>(std::pow(
                                     10000.0, static_cast<double>(static_cast<float>(j) / static_cast<float>(size)))));
  return frequencies;
}

class TableBuilder {
 public:
  TableBuilder(const QwenImageConfig& config, int64_t tokens) {
    for (size_t axis = 0; axis < 3; ++axis) frequencies_[axis] = axis_frequencies(config.rope_axes[axis]);
    table_.cos = Tensor::empty(DType::kF32, {tokens, config.head_width / 2});
    table_.sin = Tensor::empty(DType::kF32, {tokens, config.head_width / 2});
    cos_ = table_.cos.mutable_data<float>();
    sin_ = table_.sin.mutable_data<float>();
  }

  void add_token(int64_t frame, int64_t row, int64_t column) {
    const int64_t position[3] = {frame, row, column};
    for (size_t axis = 0; axis < 3; ++axis)
      for (const float frequency : frequencies_[axis]) {
        const float angle = static_cast<float>(position[axis]) * frequency;
        *cos_++ = std::cos(angle);
        *sin_++ = std::sin(angle);
      }
  }

  RopeTable take() { return table_; }

 private:
  std::vector<float> frequencies_[3];
  RopeTable table_;
  float *cos_, *sin_;
};

}  // namespace

Rope make_rope(const QwenImageConfig& config, const std::vector<Grid>& grids, int64_t text_tokens) {
  int64_t image_tokens = 0, text_start = 0;
  for (const Grid& grid : grids) {
    image_tokens += grid.tokens();
    text_start = std::max({text_start, grid.height / 2, grid.width / 2});
  }
  if (config.layer3d_rope) text_start = std::max(text_start, static_cast<int64_t>(grids.size()) - 1);
  if (text_start + text_tokens > kTableEnd)
    fail(Code::kBadInput, "rope", "image and text are too large together",
         {.expected = "half the longer side in tokens plus text tokens at most " + std::to_string(kTableEnd),
          .got = std::to_string(text_start + text_tokens)});
  TableBuilder image(config, image_tokens), text(config, text_tokens);
  const auto first_frame = [&](size_t m) {
    return config.layer3d_rope && m + 1 == grids.size() ? -1 : static_cast<int64_t>(m);
  };
  for (size_t m = 0; m < grids.size(); ++m)
    for (int64_t f = 0; f < grids[m].frames; ++f)
      for (int64_t y = 0; y < grids[m].height; ++y)
        for (int64_t x = 0; x < grids[m].width;
             ++x)  // odd sizes lean to the negative side: -ceil(h/2) .. floor(h/2) - 1
          image.add_token(first_frame(m) + f, y - (grids[m].height - grids[m].height / 2),
                          x - (grids[m].width - grids[m].width / 2));
  for (int64_t j = 0; j < text_tokens; ++j) text.add_token(text_start + j, text_start + j, text_start + j);
  return {image.take(), text.take()};
}

Rope uploaded(Backend& backend, const Rope& rope) {
  return {{backend.upload(rope.img.cos), backend.upload(rope.img.sin)},
          {backend.upload(rope.txt.cos), backend.upload(rope.txt.sin)}};
}

}  // namespace lockstep::models
