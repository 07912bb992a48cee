#include "text/prompt_template.h"

#include <fmt/format.h>

namespace lockstep {
namespace {

// Literal data of the model: it was trained with these words, errors of style included.
constexpr std::string_view kSystem = "<|im_start|>system\n";
constexpr std::string_view kGenerateTask =
    "Describe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the "
    "objects "
    "and background:";
constexpr std::string_view kEditTask =
    "Describe the key features of the input image (color, shape, size, texture, objects, background), then explain how "
    "the "
    "user's text instruction should alter or modify the image. Generate a new image that meets the user's requirements "
    "while "
    "maintaining consistency with the original input where appropriate.";
constexpr std::string_view kUser = "<|im_end|>\n<|im_start|>user\n";
constexpr std::string_view kAssistant = "<|im_end|>\n<|im_start|>assistant\n";
constexpr std::string_view kImage = "<|vision_start|><|image_pad|><|vision_end|>";

}  // namespace

std::string apply_template(PromptKind kind, std::string_view user_text) {
  return fmt::format("{}{}{}{}{}", kSystem, kind == PromptKind::kGenerate ? kGenerateTask : kEditTask, kUser, user_text,
                     kAssistant);
}

std::string image_placeholders(int images, bool numbered) {
  std::string text;
  for (int i = 1; i <= images; ++i) text += numbered ? fmt::format("Picture {}: {}", i, kImage) : std::string(kImage);
  return text;
}

PromptTokens tokenize_prompt(const Tokenizer& tokenizer, std::string_view prompt) {
  const std::vector<int32_t> ids = tokenizer.encode(apply_template(PromptKind::kGenerate, prompt));
  const size_t kept = std::min<size_t>(ids.size(), kGenerateDrop + kMaxPromptTokens);
  return {{ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept)}, kGenerateDrop};
}

}  // namespace lockstep
