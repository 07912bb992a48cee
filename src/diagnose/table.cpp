#include "diagnose/case/family.h"

namespace lockstep {

void search_depthwise(Case& failing, Findings& out);      // convolution/depthwise.cpp
void search_noted_weights(Case& failing, Findings& out);  // weight/noted_weights.cpp

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {"garbage", search_garbage, nullptr, false, true},
      {"precision", search_precision, nullptr, false, true},
      {"layout", search_layout, nullptr, false, true},
      {"capture", search_capture},
      {"additional stage", search_additional_stage},
      {"affine", search_affine, nullptr, false, true},
      {"elementwise", search_elementwise, nullptr, false, true},
      {"parts", search_parts},
      {"norm", search_norm, confirm_norm, true},
      {"norm between", search_norm_between},
      {"space norm", search_space_norm, nullptr, true},
      {"activation", search_activation, confirm_activation, true},
      {"channelwise", search_channelwise, nullptr, true},
      {"conditioning", search_conditioning},
      {"linear", search_linear, confirm_linear, true},
      {"noted weights", search_noted_weights},
      {"tokens", search_tokens},
      {"embedding", search_embedding, nullptr, true},
      {"convolution", search_convolution, nullptr, true},
      {"depthwise convolution", search_depthwise, nullptr, true},
      {"resample", search_resample},
      {"attention", search_attention, nullptr, true},
      {"rotary table", search_rotary_table},
      {"rotation", search_rotation, nullptr, true},
      {"timestep", search_timestep, confirm_timestep, true},
      {"guidance", search_guidance, nullptr, true},
      {"scheduler", search_scheduler, nullptr, true},
      {"latents", search_latents, nullptr, true},
      {"picture", search_picture},
  };
  return kFamilies;
}

}  // namespace lockstep
