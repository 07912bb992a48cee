// A norm's input and result on both sides, and what a form of it leaves of them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "diagnose/norm/norm_form.h"
#include "diagnose/search/edits.h"
#include "diagnose/search/fit.h"

namespace lockstep {

class NormProbe {
 public:
  NormProbe(Case& failing, const Item& input);
  int64_t channels() const { return channels_; }
  int64_t heads() const { return heads_; }
  double measure(bool candidate, const NormParams& p) const;
  // The candidate is the reference's norm up to a factor for each row: which statistic gives those?
  EditedForm<NormParams> by_row_factor(const NormParams& reference) const;
  // The weight of another norm in its own one's place.
  EditedForm<NormParams> with_other_weight(const NormParams& reference) const;
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
  double measure_along_axis(const NormParams& p) const;
  std::optional<EditedForm<NormParams>> by_power(const NormParams& reference, const std::vector<double>& factor,
                                                 const std::vector<double>& squares) const;

  Case& failing_;
  const Item& input_;
  int64_t channels_ = 1, heads_ = 1, batch_ = 1;
  Side r_, c_;
  std::optional<std::vector<float>> weight_r_, weight_c_, bias_r_, bias_c_;
};

}  // namespace lockstep
