// Which x gave y = x W^T? Asked of one layer, or of several that share their input (queries, keys, values).
#pragma once
#include <vector>

#include "measure/values.h"

namespace lockstep {

class InverseLinear {
 public:
  // Weights [N_i, K] with sum of N_i >= K. The first one alone is used when K is large: then it needs N >= K.
  explicit InverseLinear(const std::vector<const Values*>& weights);
  bool usable() const { return usable_; }
  // One output [rows, N_i] for each weight, biases taken away; gives [rows, K].
  Values input_of(const std::vector<const Values*>& outputs) const;

 private:
  void factor_normal_equations();
  void factor_square();

  std::vector<const Values*> weights_;
  int64_t k_ = 0;
  bool usable_ = false, square_ = false;
  std::vector<double> normal_;  // Cholesky factor, lower triangle
  std::vector<float> lu_;       // of K rows of the first weight
  std::vector<int64_t> rows_;   // which ones, in the order of the factors
};

}  // namespace lockstep
