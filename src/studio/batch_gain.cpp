#include "studio/batch_gain.h"

#include <algorithm>

namespace lockstep {

size_t BatchGain::best(const std::string& shape, size_t room) const {
  const auto found = shapes_.find(shape);
  if (found == shapes_.end()) return 1;
  const auto measured = [&](size_t pictures) -> const Measured* {
    const auto size = found->second.sizes.find(pictures);
    if (size == found->second.sizes.end() || size->second.samples < kSamples) return nullptr;
    return found->second.drawn - size->second.at < kFreshPictures ? &size->second : nullptr;
  };
  const auto secs = [](const Measured& size) { return std::min(size.last, size.before); };
  const Measured* fastest = measured(1);
  if (!fastest) return 1;
  size_t best = 1;
  for (size_t pictures = 2; pictures <= room; pictures *= 2) {
    const Measured* const size = measured(pictures);
    if (!size) return pictures;
    if (secs(*size) > (1 - kLeastGain) * secs(*fastest)) break;
    best = pictures, fastest = size;
  }
  return best;
}

void BatchGain::took(const std::string& shape, size_t pictures, double secs_a_picture) {
  if (shapes_.size() >= kMostShapes && !shapes_.contains(shape)) shapes_.clear();
  Shape& of_shape = shapes_[shape];
  Measured& size = of_shape.sizes[pictures];
  if (of_shape.drawn - size.at >= kFreshPictures) size.samples = 0;
  of_shape.drawn += static_cast<int64_t>(pictures);
  size.before = size.last;
  size.last = secs_a_picture;
  ++size.samples;
  size.at = of_shape.drawn;
}

}  // namespace lockstep
