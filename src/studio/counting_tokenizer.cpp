#include "studio/counting_tokenizer.h"

#include <algorithm>

#include "text/prompt_template.h"

namespace lockstep {

size_t CountingTokenizer::count(const ModelFolder& model, const std::string& prompt) {
  std::call_once(read_, [&] { tokenizer_.emplace(model.tokenizer()); });
  const PromptTokens tokens = tokenize_whole_prompt(*tokenizer_, prompt);
  return tokens.ids.size() - std::min(tokens.ids.size(), static_cast<size_t>(tokens.drop));
}

}  // namespace lockstep
