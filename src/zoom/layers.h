// Layers computed again that are more than arithmetic over whole arrays: convolutions, group norms, tables.
#pragma once
#include "zoom/numbers.h"
#include "zoom/tape.h"

namespace lockstep::zoom {

struct ConvolutionForm {
  std::vector<int64_t> stride, padding, dilation;  // one number for all axes, or one an axis
  int64_t groups = 1;
};

// What a step's arguments say; Error{kUnsupported} where they are words or do not fit the number of axes.
ConvolutionForm convolution_form(const Step& step, size_t axes);

// x [B, C, ...], weight [O, C / groups, ...] → [B, O, ...], as torch orders them; bias may be null.
Numbers convolution(const Numbers& x, const Numbers& weight, const Numbers* bias, const ConvolutionForm& form);

Numbers group_norm(const Numbers& x, int64_t groups, const Numbers* weight, const Numbers* bias, double eps);

Numbers rows_of_table(const Numbers& table, const Numbers& indices);

Numbers cumulative_sum(const Numbers& x, int axis);

}  // namespace lockstep::zoom
