// Where a vector over the channels comes from. A factor or an offset for each channel says what is different; that it
// is a part of a modulation read along the wrong axis, or the ratio of two weights of the checkpoint, says what was
// done.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "diagnose/search/fit.h"

namespace lockstep {

// A recorded vector that is longer than the channels, or of another call: of one item of the batch.
struct LongVector {
  std::string name;
  std::vector<float> v;
};

// offset + sign * v[start + stride * (j % run) + jump * (j / run)] for channel j, where `wrap` elements run in a
// circle.
struct VectorReading {
  size_t source = 0;
  int64_t start = 0, stride = 1, run = 1, jump = 0, wrap = 1;
  double sign = 1, offset = 0;
  double residual = INFINITY;  // against what varies in the vector
  int64_t at(int64_t channel) const {
    const int64_t far = start % wrap + stride * (channel % run) + jump * (channel / run);
    return start / wrap * wrap + (far % wrap + wrap) % wrap;
  }
};

class VectorSources {
 public:
  VectorSources(Case& failing, int64_t channels);
  // The wanted numbers as elements of one source, evenly spaced or in even blocks.
  std::optional<VectorReading> find(const std::vector<double>& wanted) const;
  std::vector<float> values(const VectorReading& reading) const;  // without sign and offset
  std::string words(const VectorReading& reading) const;

 private:
  int64_t channels_;
  std::vector<LongVector> sources_;
};

// Yours is a[channel] * y + b[channel]: which vectors make that? Nothing when none does.
struct ChannelRelation {
  std::vector<double> a, b;
  bool has_factor = false, has_offset = false;
  double residual = 0;
};
std::optional<Finding> origin_of(Case& failing, const ChannelRelation& relation);

}  // namespace lockstep
