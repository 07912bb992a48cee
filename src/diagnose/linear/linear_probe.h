// y = x W^T + b on sampled rows and columns, the ones where the two sides differ: what all the questions about a linear
// layer are asked of.
#pragma once
#include <vector>

#include "diagnose/search/fit.h"
#include "diagnose/search/number_formats.h"

namespace lockstep {

class LinearProbe {
 public:
  // The weight is large: it stays where it is, and outlives the probe.
  LinearProbe(Case& failing, const Item& input, const Values& weight, Format held_in = nullptr);

  bool explains_reference(double& residual) const;
  double with_reference() const { return with_reference_; }
  // ||x W^T + b - y|| / ||y|| for the candidate with another weight, bias or input.
  double candidate(const Values& w, const std::vector<float>* b) const;
  // The same with these rows of W, of the first columns looked at; `quick`: for a few rows of the input.
  double candidate_rows(const Values& rows, bool quick = false) const { return of_rows(rows, bias(), quick); }
  double candidate_rows(const Values& rows, const std::vector<float>* b) const { return of_rows(rows, b, false); }
  // The same with W's elements from elsewhere in its memory: source(row, column) is where.
  template <typename Source>
  double candidate_moved(Source&& source) const {
    Values rows = make_values({static_cast<int64_t>(columns_.size()), w_.last()});
    for (size_t k = 0; k < columns_.size(); ++k)
      for (int64_t i = 0; i < w_.last(); ++i)
        rows.row(static_cast<int64_t>(k))[static_cast<size_t>(i)] = w_.v[static_cast<size_t>(source(columns_[k], i))];
    return candidate_rows(rows);
  }
  double candidate_with_input(const Values& x, bool quick = false) const;
  double candidate_in(Format input, Format weight, Format bias) const;  // with these held in poorer formats
  bool good(double residual) const;

  const std::vector<float>* bias() const { return bias_.empty() ? nullptr : &bias_; }
  const Values& weight() const { return w_; }
  const Values& input() const { return x_c_; }  // [rows, inputs], the candidate's
  const std::vector<int64_t>& columns() const { return columns_; }
  int64_t rows() const { return x_c_.rows(); }
  // What is left of the candidate's output when the bias is taken away, and the right product: [rows, columns].
  Values without_bias(const std::vector<int64_t>& columns) const;
  Values product(const std::vector<int64_t>& columns) const;
  Values without_bias() const { return without_bias(columns_); }
  Values product() const { return product(columns_); }
  // What is left of the candidate's output when the right product is taken away, by column.
  std::vector<float> own_bias() const;
  Case& failing() const { return failing_; }
  Format held_in() const { return held_in_; }     // what the model's weights are rounded to; null: as in the file
  std::string region() const { return region_; }  // " (columns 5 and later)" when only some columns differ

 private:
  void choose(const Values& input);
  double of_rows(const Values& rows, const std::vector<float>* b, bool quick) const;
  Case& failing_;
  const Values& w_;
  Values x_r_, x_c_, y_r_, y_c_;
  std::vector<float> bias_;
  std::vector<int64_t> rows_, columns_;
  std::string region_;
  Format held_in_;
  double with_reference_ = 0;
};

// ||x W^T + b - y|| / ||y|| over these columns.
double linear_misfit(const Values& x, const Values& y, const Values& w, const std::vector<float>& bias,
                     const std::vector<int64_t>& columns);

}  // namespace lockstep
