// y = norm(x) * weight + bias, with everything that can be different about it.
#pragma once
#include <string>

#include "diagnose/search/number_formats.h"

namespace lockstep {

// kUnit: divided by the length, without sqrt(channels). kCentred: the mean taken away, no more. kVariance: divided by
// the variance, its root not taken. kSample: LayerNorm with n - 1. kMeanAbs, kLargest: divided by those.
// kMeanKept: divided by the deviation from the mean, which stays. kCentredRms: the mean taken away, divided by the rms.
enum class NormKind {
  kRms,
  kLayer,
  kNone,
  kUnit,
  kCentred,
  kVariance,
  kSample,
  kMeanAbs,
  kLargest,
  kMeanKept,
  kCentredRms
};
// kGroups: of channels, in each token. kGroupsOfAll: of channels, over all tokens of an item, as GroupNorm does.
// kAxis: along another axis of the tensor, as when channels are taken to be last. kOneRow: of one row, for all of them.
enum class NormSpan { kChannels, kHeads, kTokens, kAll, kGroups, kGroupsOfAll, kAxis, kOneRow };
enum class WeightUse { kNone, kPlain, kOnePlus, kTwice, kInverse, kBefore };

struct NormParams {
  NormKind kind = NormKind::kRms;
  double eps = 1e-6;
  NormSpan span = NormSpan::kChannels;
  WeightUse use = WeightUse::kNone;
  bool bias = true;               // its own, where it has one
  bool eps_outside = false;       // added to the root, not under it
  bool twice = false;             // the norm of the norm
  int64_t groups = 1;             // of kGroups and kGroupsOfAll
  int axis = 0;                   // of kAxis
  bool root_of_channels = false;  // and multiplied by their root still, which was written down as a number
  int64_t part = 0;     // the statistic is that of the first so many channels, or of the last -part; 0: of all
  double counted = 1;   // the mean of the squares is this many times too large
  double least = 0;     // and held to no less than this
  double power = -0.5;  // of the mean of the squares, which each row is multiplied by
  // What is held in a poorer format: the input, the mean of the squares, the factor 1/root, the normalised rows, the
  // weight.
  Format input = nullptr, squares = nullptr, factor = nullptr, normal = nullptr, weighted = nullptr;
  // And for the statistic alone: the input, each square, the running sum of the squares.
  Format statistic = nullptr, square = nullptr, sum = nullptr;
  std::string weight = {};  // of another module, when not its own
};

// Normalises `n` numbers that lie `stride` apart; the weight is not its business.
void normalise(double* x, int64_t n, int64_t stride, const NormParams& p);
std::string formula(const NormParams& p);
double weight_factor(WeightUse use, double weight);  // what a channel is multiplied by
const char* kind_name(NormKind kind);
const char* span_name(NormSpan span);

}  // namespace lockstep
