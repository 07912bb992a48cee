// The two small files beside a vocabulary that may name added tokens.
#pragma once
#include <vector>

#include "base/json.h"
#include "text/added_tokens.h"

namespace lockstep {

// tokenizer_config.json: tokens under "added_tokens_decoder" are appended to `added`; settings that change ids are
// refused.
void read_tokenizer_config(const fs::path& path, std::vector<AddedToken>& added);
// added_tokens.json, {"<|im_end|>": 151645, ...}: tokens that are not in `added` yet are appended to it.
void read_added_tokens(const fs::path& path, std::vector<AddedToken>& added);

}  // namespace lockstep
