#include "compare/families/family.h"

namespace lockstep {

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {"garbage", search_garbage},
      {"precision", search_precision},
      {"layout", search_layout},
      {"capture", search_capture},
      {"affine", search_affine},
      {"norm", search_norm, confirm_norm, true},
      {"activation", search_activation, confirm_activation, true},
      {"channelwise", search_channelwise, nullptr, true},
      {"linear", search_linear, confirm_linear, true},
      {"convolution", search_convolution, nullptr, true},
      {"resample", search_resample},
      {"attention", search_attention, nullptr, true},
      {"rotary table", search_rotary_table},
      {"timestep", search_timestep, confirm_timestep, true},
      {"guidance", search_guidance, nullptr, true},
      {"scheduler", search_scheduler, nullptr, true},
      {"latents", search_latents, nullptr, true},
  };
  return kFamilies;
}

}  // namespace lockstep
