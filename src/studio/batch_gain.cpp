#include "studio/batch_gain.h"

#include <algorithm>

namespace lockstep {

size_t BatchGain::best(const std::string& shape, size_t room) const {
  if (room <= 1) return 1;
  const auto found = shapes_.find(shape);
  if (found == shapes_.end()) return 1;
  const std::map<size_t, Measured>& sizes = found->second;
  const auto measured = [&](size_t pictures) {
    const auto size = sizes.find(pictures);
    return size != sizes.end() && size->second.samples >= kSamples;
  };
  if (!measured(1)) return 1;
  if (!measured(room)) return room;
  size_t best = 1;
  for (const auto& [pictures, size] : sizes)
    if (pictures <= room && measured(pictures) && size.secs < sizes.at(best).secs) best = pictures;
  return best;
}

void BatchGain::took(const std::string& shape, size_t pictures, double secs_a_picture) {
  if (shapes_.size() >= kMostShapes && !shapes_.contains(shape)) shapes_.clear();
  Measured& size = shapes_[shape][pictures];
  size.secs = size.samples == 0 ? secs_a_picture : std::min(size.secs, secs_a_picture);
  ++size.samples;
}

}  // namespace lockstep
