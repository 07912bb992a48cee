// How alike two recorded tensors are, whatever their layout and dtype: from statistics, which no order of elements
// changes, and from a sample of elements. Cheap enough to be asked of every pair of two runs.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "diagnose/case/run_view.h"

namespace lockstep {

struct Likeness {
  bool known = false;      // both have values (or the same checksum) and as many elements
  double error = 2;        // of the sample, relative to the larger of the two
  double correlation = 0;  // of the sample
  double weight = 0;       // how much equality means: little for few elements, nothing for a constant
  bool moved = false;      // equal or nearly so, in another order of axes
  double size = 1;         // of the candidate's values: its rms to the reference's
};

class LikenessOracle {
 public:
  LikenessOracle(const RunView& reference, const RunView& candidate);

  Likeness of(size_t reference_record, size_t candidate_record);
  // The candidate's axes in the reference's order, where another order than its own makes them alike.
  std::optional<std::vector<int>> axis_order(size_t reference_record, size_t candidate_record);

 private:
  struct Digest {
    bool read = false, known = false;
    int64_t count = 0;
    double rms = 0, mean = 0, low = 0, high = 0;
    std::vector<float> sample;
  };
  Digest& digest(const RunView& run, std::vector<Digest>& of, size_t record);
  struct Order {
    std::vector<int> axes;
    double error = 2, correlation = 0;
  };
  std::optional<Order> best_order(size_t reference_record, size_t candidate_record);

  const RunView& reference_;
  const RunView& candidate_;
  std::vector<Digest> digests_r_, digests_c_;
  int64_t orders_left_, packings_left_;
};

bool same_element_count(const RecordedTensor& a, const RecordedTensor& b);

}  // namespace lockstep
