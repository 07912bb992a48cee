#include "compare/families/family.h"

namespace lockstep {

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {"garbage", search_garbage},
      {"precision", search_precision},
      {"layout", search_layout},
      {"capture", search_capture},
      {"affine", search_affine},
      {"norm", search_norm, confirm_norm},
      {"activation", search_activation, confirm_activation},
      {"channelwise", search_channelwise},
      {"linear", search_linear, confirm_linear},
      {"convolution", search_convolution},
      {"resample", search_resample},
      {"attention", search_attention},
      {"rotary table", search_rotary_table},
      {"timestep", search_timestep, confirm_timestep},
      {"guidance", search_guidance},
      {"scheduler", search_scheduler},
      {"latents", search_latents},
  };
  return kFamilies;
}

}  // namespace lockstep
