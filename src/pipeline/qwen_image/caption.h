// The description that the layered model writes of a picture that comes without a prompt.
#pragma once
#include "pipeline/noise.h"
#include "pipeline/pictures.h"
#include "pipeline/stages.h"

namespace lockstep {

// How the next token is chosen: generation_config.json beside the text encoder's weights.
struct TokenChoice {
  bool sample = false;
  double temperature = 1, top_p = 1, repetition_penalty = 1;
  int64_t top_k = 50;
  std::vector<int64_t> ends;  // tokens that end the text
};
TokenChoice read_token_choice(const fs::path& text_encoder_folder);

// The next of a text whose tokens so far are `seen`, by the scores of all tokens.
int64_t choose_token(std::span<const float> scores, std::span<const int64_t> seen, const TokenChoice& choice,
                     TorchGenerator& generator);

inline constexpr int kMostCaptionTokens = 512;

class Captioner {
 public:
  explicit Captioner(const Stages& stages);
  std::string describe(const Tensor& rgb, const GenerateRequest& request) const;  // u8 [H, W, 3]

 private:
  const Stages& stages_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  ImageProcessor processor_;
  TokenChoice choice_;
  std::shared_ptr<const models::TextModel> model_;
  std::shared_ptr<const models::VisionTower> tower_;
};

}  // namespace lockstep
