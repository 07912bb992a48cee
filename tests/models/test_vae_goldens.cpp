// The VAE alone against the official module: encoding at every tap, tiles of several shapes both ways.
#include <gtest/gtest.h>

#include "models/qwen_vae/vae.h"
#include "support/golden_recording.h"

namespace lockstep {
namespace {

using testing::CollectingTap;
using testing::GoldenRecording;
using testing::kF32Bound;
using testing::kGoldens;
using testing::relative_l2;

class VaeGoldens : public ::testing::Test {
 protected:
  VaeGoldens()
      : backend(make_backend("reference")),
        config(models::read_vae_config(kGoldens / "t2i_f32/model/vae/config.json")),
        checkpoint(Checkpoint::open(kGoldens / "t2i_f32/model/vae")),
        weights(checkpoint, *backend, {}),
        decoder(weights, config),
        encoder(weights, config) {}

  models::Tiling tiling_of(const Json& json) const {
    return {json["tile"][0], json["tile"][1], json["stride"][0], json["stride"][1]};
  }

  std::unique_ptr<Backend> backend;
  models::VaeConfig config;
  Checkpoint checkpoint;
  nn::Weights weights;
  models::VaeDecoder decoder;
  models::VaeEncoder encoder;
  CollectingTap tap;
};

TEST_F(VaeGoldens, EveryKeyOfTheCheckpointIsAccountedFor) {
  EXPECT_NO_THROW(weights.finish("vae"));
}

TEST_F(VaeGoldens, EncodingAgreesAtEveryTap) {
  const GoldenRecording golden(kGoldens / "vae/encode");
  const nn::Execution execution{.backend = *backend, .tap = &tap};
  const Tensor moments = models::encode_image(encoder, config, golden.tensor("pixels"), {}, nn::Ctx(execution, "vae"));
  size_t compared = 0;
  for (const TensorKey& key : tap.order) {
    if (!golden.has(key)) continue;
    ++compared;
    ASSERT_LE(relative_l2(golden.tensor(key), tap.tensors.at(key)), kF32Bound) << to_string(key);
  }
  EXPECT_GT(compared, 40u);
  EXPECT_LE(relative_l2(golden.tensor("mean"), moments.slice(1, 0, 16)), kF32Bound);
  EXPECT_LE(relative_l2(golden.tensor("logvar"), moments.slice(1, 16, 32)), kF32Bound);
}

TEST_F(VaeGoldens, TiledDecodingBlendsAsTheOfficialModule) {
  const auto golden = SafetensorsFile::open(kGoldens / "vae/tiled.safetensors");
  const Json plans = read_json(kGoldens / "vae/tiled.json");
  const nn::Execution execution{.backend = *backend};
  for (const char* name : {"small", "uneven"}) {
    const Tensor image = models::decode_latents(decoder, config, golden->tensor(std::string(name) + "_latents"),
                                                tiling_of(plans[name]), nn::Ctx(execution, "vae"));
    EXPECT_LE(relative_l2(golden->tensor(std::string(name) + "_decoded"), image.permute({0, 3, 1, 2}).unsqueeze(2)),
              kF32Bound)
        << name;
  }
}

TEST_F(VaeGoldens, TiledEncodingBlendsAsTheOfficialModule) {
  const auto golden = SafetensorsFile::open(kGoldens / "vae/tiled.safetensors");
  const Json plans = read_json(kGoldens / "vae/tiled.json");
  const nn::Execution execution{.backend = *backend};
  const Tensor moments = models::encode_image(encoder, config, golden->tensor("small_pixels"),
                                              tiling_of(plans["small"]), nn::Ctx(execution, "vae"));
  EXPECT_LE(relative_l2(golden->tensor("small_mean"), moments.slice(1, 0, 16)), kF32Bound);
  EXPECT_LE(relative_l2(golden->tensor("small_logvar"), moments.slice(1, 16, 32)), kF32Bound);
}

}  // namespace
}  // namespace lockstep
