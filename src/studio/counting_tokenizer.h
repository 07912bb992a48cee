// How many tokens a prompt has, so that pictures of one shape are found before they are drawn. A model's tokenizer is
// read when it is first asked, and stays.
#pragma once
#include <mutex>
#include <optional>
#include <string>

#include "pipeline/model_folder.h"

namespace lockstep {

class CountingTokenizer {
 public:
  size_t count(const ModelFolder& model, const std::string& prompt);  // from any thread

 private:
  std::once_flag read_;
  std::optional<const Tokenizer> tokenizer_;
};

}  // namespace lockstep
