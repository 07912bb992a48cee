#include <cmath>

#include "base/error.h"
#include "models/qwen2_5_vl/vision_tower.h"

namespace lockstep::models {
namespace {

// Angles of one patch: rows turn the first half of the frequencies, columns the second.
class PatchAngles {
 public:
  PatchAngles(const VisionConfig& config, int64_t patches) {
    const int64_t spatial = config.head_width() / 2;
    for (int64_t j = 0; j < spatial; j += 2) {
      const float exponent = static_cast<float>(j) / static_cast<float>(spatial);
      frequencies_.push_back(1.0f / static_cast<float>(std::pow(config.rope_theta, static_cast<double>(exponent))));
    }
    table_ = {Tensor::empty(DType::kF32, {patches, spatial}), Tensor::empty(DType::kF32, {patches, spatial})};
    cos_ = table_.cos.mutable_data<float>();
    sin_ = table_.sin.mutable_data<float>();
  }
  void add(int64_t row, int64_t column) {
    for (const int64_t position : {row, column})
      for (const float frequency : frequencies_) {
        const float angle = static_cast<float>(position) * frequency;
        *cos_++ = std::cos(angle);
        *sin_++ = std::sin(angle);
      }
  }
  RotaryTable take() { return table_; }

 private:
  std::vector<float> frequencies_;
  RotaryTable table_;
  float *cos_, *sin_;
};

}  // namespace

WindowPlan plan_windows(const VisionConfig& config, std::span<const PatchGrid> grids) {
  const int64_t side = config.window / config.patch / config.merge;  // of a window, in merged patches
  int64_t patches = 0;
  for (const PatchGrid& grid : grids) patches += grid.patches();
  WindowPlan plan;
  PatchAngles angles(config, patches);
  int64_t first = 0;  // group of this picture
  for (const PatchGrid& grid : grids) {
    const int64_t rows = grid.height / config.merge, columns = grid.width / config.merge;
    for (int64_t top = 0; top < rows; top += side)
      for (int64_t left = 0; left < columns; left += side) {
        for (int64_t y = top; y < std::min(top + side, rows); ++y)
          for (int64_t x = left; x < std::min(left + side, columns); ++x) {
            plan.order.push_back(first + y * columns + x);
            for (int64_t dy = 0; dy < config.merge; ++dy)
              for (int64_t dx = 0; dx < config.merge; ++dx) angles.add(y * config.merge + dy, x * config.merge + dx);
          }
        plan.window_ends.push_back(static_cast<int64_t>(plan.order.size()) * config.merged_patches());
      }
    first += rows * columns;
    plan.picture_ends.push_back(first * config.merged_patches());
  }
  plan.restored.resize(plan.order.size());
  for (size_t i = 0; i < plan.order.size(); ++i)
    plan.restored[static_cast<size_t>(plan.order[i])] = static_cast<int64_t>(i);
  plan.rope = angles.take();
  return plan;
}

std::vector<TextPosition> image_positions(std::span<const int64_t> ids, std::span<const PatchGrid> grids,
                                          const VisionConfig& config) {
  std::vector<TextPosition> positions;
  size_t picture = 0;
  int64_t next = 0;
  while (positions.size() < ids.size()) {
    if (ids[positions.size()] != config.image_token || picture == grids.size()) {
      positions.push_back({next, next, next});
      ++next;
      continue;
    }
    const PatchGrid& grid = grids[picture++];
    const int64_t rows = grid.height / config.merge, columns = grid.width / config.merge;
    for (int64_t y = 0; y < rows; ++y)
      for (int64_t x = 0; x < columns; ++x) positions.push_back({next, next + y, next + x});
    next += std::max(rows, columns);
  }
  if (positions.size() != ids.size())
    fail(Code::kInternal, "image_positions", "the prompt has fewer image tokens than the pictures have rows");
  return positions;
}

}  // namespace lockstep::models
