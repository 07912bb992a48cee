// The official tokenizer library carries two versions of Unicode, and ours is a third: its patterns know 16.0, its
// normalisation stopped at 9.0, utf8proc 2.8 is at 15.0. Ids are to be equal, so these tables move our properties to
// theirs. tests/python/test_tokenizer.py compares every code point with the installed library and fails when a table is
// stale.
#pragma once
#include <array>

namespace lockstep {

struct CodePointRange {
  char32_t first, last;
};

// Letters and numbers of 15.1 and 16.0.
inline constexpr std::array kNewLetters = std::to_array<CodePointRange>(
    {{0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3}, {0x10D4A, 0x10D65},
     {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x11380, 0x11389}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E},
     {0x11390, 0x113B5}, {0x113B7, 0x113B7}, {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0},
     {0x13460, 0x143FA}, {0x16100, 0x1611D}, {0x16D40, 0x16D6C}, {0x18CFF, 0x18CFF}, {0x1E5D0, 0x1E5ED},
     {0x1E5F0, 0x1E5F0}, {0x2EBF0, 0x2EE5D}});
inline constexpr std::array kNewNumbers = std::to_array<CodePointRange>({{0x10D40, 0x10D49},
                                                                         {0x116D0, 0x116E3},
                                                                         {0x11BF0, 0x11BF9},
                                                                         {0x16130, 0x16139},
                                                                         {0x16D70, 0x16D79},
                                                                         {0x1CCF0, 0x1CCF9},
                                                                         {0x1E5F1, 0x1E5FA}});

// Marks that came after 9.0: in the library's normalisation they neither move nor combine.
inline constexpr std::array kUnknownMarks = std::to_array<CodePointRange>(
    {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
     {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
     {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
     {0x11930, 0x11930}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
     {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
     {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
     {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}});

}  // namespace lockstep
