// Cuts text into the pieces that byte pairs never cross: a scanner for the one pattern that Qwen2 tokenizers use,
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
#pragma once
#include <cstddef>
#include <string_view>

namespace lockstep {

extern const std::string_view kQwen2Pattern;

// The end of the piece that starts at `begin` < text.size(). Only for text that passed check_utf8.
size_t piece_end(std::string_view text, size_t begin);

}  // namespace lockstep
