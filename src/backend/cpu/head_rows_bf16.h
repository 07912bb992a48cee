// qk-norm + interleaved rotation of bf16 heads where the processor rounds to bf16 itself.
#pragma once
#include "backend/cpu/row_kernels.h"

namespace lockstep::cpu {

bool head_rows_bf16_fits(const HeadRows& task);
void head_rows_bf16_avx512(const HeadRows& task, int64_t begin, int64_t end);  // AVX512-BF16

}  // namespace lockstep::cpu
