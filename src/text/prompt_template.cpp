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
// The line breaks inside sentences belong to the data too.
constexpr std::string_view kCaptionEnglish =
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n# Image Annotator\n"
    "You are a professional\nimage annotator. Please write an image caption based on the input image:\n"
    "1. Write the caption using natural,\ndescriptive language without structured formats or rich text.\n"
    "2. Enrich caption details by including: \n - Object\nattributes, such as quantity, color, shape, "
    "size, material, state, position, actions, and so on\n - Vision Relations\nbetween objects, such "
    "as spatial relations, functional relations, possessive relations, attachment relations, action\n"
    "relations, comparative relations, causal relations, and so on\n - Environmental details, such as "
    "weather, lighting,\ncolors, textures, atmosphere, and so on\n - Identify the text clearly visible "
    "in the image, without translation or\nexplanation, and highlight it in the caption with quotation "
    "marks\n3. Maintain authenticity and accuracy:\n - Avoid\ngeneralizations\n - Describe all visible "
    "information in the image, while do not add information not explicitly shown in\nthe "
    "image\n<|vision_start|><|image_pad|><|vision_end|><|im_end|>\n"
    "<|im_start|>assistant\n";
constexpr std::string_view kCaptionChinese =
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n# 图像标注器\n"
    "你是一个专业的图像标注器。请基于输入图像，撰写图注:\n1.\n使用自然、"
    "描述性的语言撰写图注，不要使用结构化形式或富文本形式。\n2. 通过加入"
    "以下内容，丰富图注细节：\n - 对象的属性：如数量、颜色、形状、大小、"
    "位置、材质、状态、动作等\n -\n对象间的视觉关系：如空间关系、功能关"
    "系、动作关系、从属关系、比较关系、因果关系等\n - 环境细节：例如天气"
    "、光照、颜色、纹理、气氛等\n - 文字内容：识别图像中清晰可见的文字，"
    "不做翻译和解释，用引号在图注中强调\n3.\n保持真实性与准确性：\n - 不要"
    "使用笼统的描述\n -\n描述图像中所有可见的信息，但不要加入没有在图像"
    "中出现的内容\n<|vision_start|><|image_pad|><|vision_end|><|im_end|>\n<|im_start|>assistant\n";

// Every image token stands for as many as its picture takes; beyond the pictures it stays as it is.
std::vector<int64_t> with_image_tokens(const std::vector<int32_t>& ids, const std::vector<int64_t>& counts,
                                       int64_t image_token) {
  std::vector<int64_t> all;
  size_t picture = 0;
  for (const int32_t id : ids)
    if (id == image_token && picture < counts.size())
      all.insert(all.end(), static_cast<size_t>(counts[picture++]), image_token);
    else
      all.push_back(id);
  return all;
}

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

PromptTokens tokenize_whole_prompt(const Tokenizer& tokenizer, std::string_view prompt) {
  const std::vector<int32_t> ids = tokenizer.encode(apply_template(PromptKind::kGenerate, prompt));
  return {{ids.begin(), ids.end()}, kGenerateDrop};
}

PromptTokens tokenize_prompt(const Tokenizer& tokenizer, std::string_view prompt) {
  PromptTokens tokens = tokenize_whole_prompt(tokenizer, prompt);
  if (tokens.ids.size() > kGenerateDrop + kMaxPromptTokens) tokens.ids.resize(kGenerateDrop + kMaxPromptTokens);
  return tokens;
}

PromptTokens tokenize_edit_prompt(const Tokenizer& tokenizer, std::string_view prompt,
                                  const std::vector<int64_t>& image_tokens, bool numbered, int64_t image_token) {
  const std::string user = image_placeholders(static_cast<int>(image_tokens.size()), numbered) + std::string(prompt);
  return {with_image_tokens(tokenizer.encode(apply_template(PromptKind::kEdit, user)), image_tokens, image_token),
          kEditDrop};
}

std::vector<int64_t> tokenize_caption_request(const Tokenizer& tokenizer, bool english, int64_t image_tokens,
                                              int64_t image_token) {
  return with_image_tokens(tokenizer.encode(english ? kCaptionEnglish : kCaptionChinese), {image_tokens}, image_token);
}

}  // namespace lockstep
