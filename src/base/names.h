// Names that people type: glob matching and "did you mean".
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// `*` matches any run of characters, dots included; `?` one character; `[a-z]` a set.
bool glob_match(std::string_view pattern, std::string_view name);

// Up to `most` of the known names nearest to `name` by edit distance, nearest first; empty when nothing is close.
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> known, size_t most = 3);

}  // namespace lockstep
