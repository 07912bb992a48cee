// The naive kernels, one function each.
#pragma once
#include "backend/kernels.h"

namespace lockstep::reference {

void linear(const LinearArgs& args);
void attention(const AttentionArgs& args);
void rms_norm(const RmsNormArgs& args);
void layer_norm(const LayerNormArgs& args);
void head_norm_rope(const HeadNormRopeArgs& args);
void add_gated(const AddGatedArgs& args);
void unary(const UnaryArgs& args);
void binary(const BinaryArgs& args);
void conv2d(const Conv2dArgs& args);
void channel_norm(const ChannelNormArgs& args);
void gather(const GatherArgs& args);
void guidance(const GuidanceArgs& args);
void copy(const CopyArgs& args);

}  // namespace lockstep::reference
