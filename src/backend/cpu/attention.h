// Blocked attention with online softmax: no score matrix, memory linear in the number of tokens.
#pragma once
#include "backend/cpu/features.h"
#include "backend/kernels.h"

namespace lockstep::cpu {

void attention(const AttentionArgs& args, int threads, Level level);

}  // namespace lockstep::cpu
