#include "pipeline/stages.h"

#include "base/interrupt.h"

namespace lockstep {

using nn::Ctx;
using nn::Execution;

Execution Stages::execution(int step, std::string_view pass) const {
  return {.backend = backend_,
          .dtype = settings_.dtype,
          .tap = settings_.tap,
          .step = step,
          .pass = pass,
          .inputs = dynamic_cast<InputTap*>(settings_.tap)};
}

Tensor Stages::tap(std::string_view name, Tensor tensor, int step, std::string_view pass) const {
  const Execution stage = execution(step, pass);
  return Ctx(stage, name).tap_stage(std::move(tensor));
}

nn::LoadProgress Stages::loading(const char* stage) const {
  constexpr int64_t kMegabyte = 1'000'000;
  return [this, stage](int64_t done, int64_t total) {
    check_interrupt("generate");
    settings_.progress(stage, done / kMegabyte, total / kMegabyte);
  };
}

std::shared_ptr<const Tokenizer> Stages::tokenizer() const {
  return part<Tokenizer>("tokenizer", [&] { return model_.tokenizer(); });
}

std::shared_ptr<const models::TextModel> Stages::text_encoder(models::TextModel::Head head) const {
  const bool plain = head == models::TextModel::Head::kNone;
  return part<models::TextModel>(plain ? "text_encoder" : "text_encoder with head", [&] {
    return model_.text_encoder(backend_, dtype(), loading("load text enc."), head);
  });
}

std::shared_ptr<const models::VisionTower> Stages::vision_tower() const {
  return part<models::VisionTower>("vision_tower",
                                   [&] { return model_.vision_tower(backend_, dtype(), loading("load vision")); });
}

std::shared_ptr<const models::QwenImageTransformer> Stages::transformer() const {
  return part<models::QwenImageTransformer>("transformer", [&] {
    return model_.transformer(backend_, dtype(), settings_.linears, loading("load transformer"));
  });
}

std::shared_ptr<const models::VaeDecoder> Stages::vae_decoder() const {
  return part<models::VaeDecoder>("vae_decoder",
                                  [&] { return model_.vae_decoder(backend_, dtype(), loading("load VAE")); });
}

std::shared_ptr<const models::VaeEncoder> Stages::vae_encoder() const {
  return part<models::VaeEncoder>("vae_encoder",
                                  [&] { return model_.vae_encoder(backend_, dtype(), loading("load VAE enc.")); });
}

}  // namespace lockstep
