// One step of online softmax over a block of scores: what lies between the two matrix products of attention.
#pragma once
#include <cstdint>

#include "tensor/float_formats.h"

namespace lockstep::cpu {

struct ScoreBlock {
  float* scores;  // [rows, columns] of q . k; columns is a multiple of 64
  int64_t scores_stride, rows, columns;
  void* weights;  // [rows, columns] out: e^(score - largest), as f32 (may be `scores`) or bf16
  int64_t weights_stride;
  float factor;    // scale * log2(e), positive: exponents are taken to base 2
  float* largest;  // [rows] in, out: the running maximum of score * factor
  float* total;    // [rows] in, out: the running sum of weights
  float* sums;     // [rows, width] in, out: the running weighted sum of values, rescaled to the new maximum
  int64_t sums_stride, width;
};

// row *= factor; the row is aligned and its width a multiple of 64.
void scale_row(float* row, float factor, int64_t width);

void soften_f32(const ScoreBlock& block);
void soften_bf16(const ScoreBlock& block);  // weights as bf16
void soften_bf16_avx512(const ScoreBlock& block);

}  // namespace lockstep::cpu
