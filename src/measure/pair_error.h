// The distance between two tensors in one pass over both, in bounded memory, whatever their dtypes.
#pragma once
#include "tensor/tensor.h"

namespace lockstep {

struct PairError {
  double relative = 0;  // ||candidate - reference|| / ||reference||
  double worst_slice =
      0;               // the same for the worst row or channel, rows far below the average counted as a quarter of it
  double max_abs = 0;  // largest |candidate - reference|
  int64_t max_abs_at = 0;  // its row-major index
  double mean_abs = 0;
  double cosine = 1;
  double rms_reference = 0, rms_candidate = 0;
  int64_t nan_reference = 0, nan_candidate = 0, inf_reference = 0, inf_candidate = 0;
  bool identical = false;  // bit for bit, dtype included
};

// Shapes must be equal. NaN or infinity on one side only makes `relative` infinite; on both at the same place it counts
// as equal.
PairError pair_error(const Tensor& candidate, const Tensor& reference);

}  // namespace lockstep
