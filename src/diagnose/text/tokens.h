// Two sequences of token ids that should be one: what was done to the text, the template or the padding.
#pragma once
#include <vector>

#include "diagnose/case/family.h"

namespace lockstep {

using Ids = std::vector<int32_t>;

// Rows of ids, one a prompt; in words, "" when they are the same.
std::string token_difference(const Case& failing, const std::vector<Ids>& reference, const std::vector<Ids>& candidate);
Finding other_input(std::string words, double complexity);
// Each row of an embedding is a row of its table, but another one than the reference's.
void search_other_ids(Case& failing, Findings& out);

}  // namespace lockstep
