// The words that Qwen-Image puts around a prompt before the text encoder sees it, and how many ids it then forgets.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace lockstep {

enum class PromptKind {
  kGenerate,  // text to image, and everything else that does not show the text encoder an image
  kEdit,      // the text encoder sees the input images
};

struct PromptTokens {
  std::vector<int64_t> ids;
  int drop = 0;  // leading rows of the encoder's output that are not used
};

inline constexpr int kGenerateDrop = 34, kEditDrop = 64;
inline constexpr int kMaxPromptTokens = 1024;  // beyond the dropped ones; the rest is cut off, closing words and all

std::string apply_template(PromptKind kind, std::string_view user_text);
// What stands for the images in an edit prompt: once for each image, numbered when the model takes several.
std::string image_placeholders(int images, bool numbered);

PromptTokens tokenize_prompt(const Tokenizer& tokenizer, std::string_view prompt);
// The same without the limit on its length.
PromptTokens tokenize_whole_prompt(const Tokenizer& tokenizer, std::string_view prompt);
// An edit prompt with pictures that take so many tokens each; nothing is cut.
PromptTokens tokenize_edit_prompt(const Tokenizer& tokenizer, std::string_view prompt,
                                  const std::vector<int64_t>& image_tokens, bool numbered, int64_t image_token);

// What the layered model is asked when it has to describe the picture itself: one picture, nothing dropped.
std::vector<int64_t> tokenize_caption_request(const Tokenizer& tokenizer, bool english, int64_t image_tokens,
                                              int64_t image_token);

}  // namespace lockstep
