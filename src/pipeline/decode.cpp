#include "pipeline/decode.h"

#include "base/interrupt.h"
#include "ops/elementwise.h"
#include "pipeline/latents.h"

namespace lockstep {

std::vector<GeneratedImage> decode(const Stages& stages, std::vector<Decoding> work) {
  const models::VaeConfig config = stages.model().vae_config();
  const auto decoder = stages.vae_decoder();
  stages.report("decode", 0, static_cast<int64_t>(work.size()));
  std::vector<GeneratedImage> images;
  for (size_t i = 0; i < work.size(); ++i) {
    check_interrupt("generate");
    if (stages.dropped(i) || !work[i].latents.defined()) continue;
    const Tensor unpacked = unpack_frames(stages.backend(), work[i].latents, work[i].frames, work[i].size.height / 8,
                                          work[i].size.width / 8);  // [frames, C, 1, h, w]
    const bool layered = work[i].frames > 1;
    const Tensor wanted = layered ? unpacked.slice(0, 1, work[i].frames) : unpacked;
    const Tensor z = stages.tap("latents_denormalized", denormalize_latents(stages.backend(), wanted, config));
    const nn::Execution stage = stages.execution();
    const Tensor decoded = models::decode_latents(*decoder, config, z, stages.settings().tiling,
                                                  nn::Ctx(stage, "vae"));  // [frames, H, W, C]
    const Tensor all = ops::pixels(stages.backend(), decoded);             // [frames, H, W, C]
    if (layered) stages.tap("images", all);
    for (int64_t frame = 0; frame < all.dim(0); ++frame) {
      const Tensor pixels = (layered ? all.select(0, frame) : stages.tap("image", all.select(0, frame))).host();
      images.push_back({.pixels = pixels,
                        .width = static_cast<int>(pixels.dim(1)),
                        .height = static_cast<int>(pixels.dim(0)),
                        .request = i,
                        .layer = layered ? static_cast<int>(frame) : -1,
                        .caption = {}});
    }
    stages.report("decode", static_cast<int64_t>(i) + 1, static_cast<int64_t>(work.size()));
  }
  return images;
}

}  // namespace lockstep
