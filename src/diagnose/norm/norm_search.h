// y = norm(x) * weight + bias, with everything that can be different about it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "diagnose/search/fit.h"
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
  bool bias = true;          // its own, where it has one
  bool eps_outside = false;  // added to the root, not under it
  bool twice = false;        // the norm of the norm
  int64_t groups = 1;        // of kGroups and kGroupsOfAll
  int axis = 0;              // of kAxis
  int64_t part = 0;          // the statistic is that of the first so many channels, or of the last -part; 0: of all
  double counted = 1;        // the mean of the squares is this many times too large
  double least = 0;          // and held to no less than this
  double power = -0.5;       // of the mean of the squares, which each row is multiplied by
  // What is held in a poorer format: the input, the mean of the squares, the factor 1/root, the normalised rows, the
  // weight.
  Format input = nullptr, squares = nullptr, factor = nullptr, normal = nullptr, weighted = nullptr;
  // And for the statistic alone: the input, each square, the running sum of the squares.
  Format statistic = nullptr, square = nullptr, sum = nullptr;
  std::string weight = {};  // of another module, when not its own
  double residual = INFINITY;
};

// Normalises `n` numbers that lie `stride` apart; the weight is not its business.
void normalise(double* x, int64_t n, int64_t stride, const NormParams& p);
std::string formula(const NormParams& p);
const char* kind_name(NormKind kind);
const char* span_name(NormSpan span);

class NormSearch {
 public:
  NormSearch(Case& failing, const Item& input);
  NormParams reference() const;
  NormParams candidate(const NormParams& reference) const;
  NormParams other_weight(const NormParams& reference) const;
  double measure(bool candidate, const NormParams& p) const;
  // The candidate is the reference's norm up to a factor for each row: which statistic gives those?
  NormParams by_row_factor(const NormParams& reference) const;
  // The candidate by these parameters from another input than the one that was recorded, or taken to be its own; or
  // from that one with each number changed.
  double measure_from(const Values& input, const NormParams& p) const;
  double measure_after(double (*change)(double), const NormParams& p) const;

  // y = norm(x) * a + b with any a and b for each channel.
  struct FreeWeight {
    std::vector<float> a, b;
    double residual = INFINITY;
  };
  FreeWeight free_weight(const NormParams& reference) const;
  const std::vector<float>* weight() const { return weight_r_ ? &*weight_r_ : nullptr; }
  const std::vector<float>* bias() const { return bias_r_ ? &*bias_r_ : nullptr; }

 private:
  struct Side {
    Values x, y;  // [rows, channels], sampled; whole groups of heads
    std::vector<int64_t> rows;
    int64_t all_rows = 0;
    std::vector<double> sums, squares;  // [item of the batch, head, channel]: for statistics over tokens
  };
  Side side_of(const Values& x, const Values& y, int axis) const;
  std::vector<double> normal_over_tokens(const Side& side, const NormParams& p) const;
  std::vector<double> normal(const Side& side, const NormParams& p, const std::vector<float>* weight) const;
  double residual(const Side& side, const NormParams& p, const std::vector<float>* weight,
                  const std::vector<float>* bias) const;
  double used_weight(const NormParams& p, size_t channel) const;  // what the candidate's row is multiplied by
  void infer_weight();
  NormParams over_other_elements(NormParams usual, const NormParams& reference) const;
  NormParams along_other_axes(NormParams usual, const NormParams& reference) const;
  NormParams unusual(NormParams usual, const NormParams& reference) const;
  NormParams finer_eps(NormParams found) const;
  NormParams by_power(const NormParams& reference, const std::vector<double>& factor,
                      const std::vector<double>& squares) const;

  Case& failing_;
  const Item& input_;
  int64_t channels_ = 1, heads_ = 1, batch_ = 1;
  Side r_, c_;
  std::optional<std::vector<float>> weight_r_, weight_c_, bias_r_, bias_c_;
};

}  // namespace lockstep
