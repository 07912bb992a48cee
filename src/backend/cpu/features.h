// What the processor can do, what we let it do, and how far oneDNN may go.
#pragma once
#include <optional>
#include <string_view>

namespace lockstep::cpu {

// Each level of x86-64 includes those of it before it. kPortable needs nothing beyond the compiler's baseline;
// kNeonBf16 is that of 64-bit ARM with bf16 dot products.
enum class Level { kPortable, kNeonBf16, kAvx2, kAvx512, kAvx512Bf16, kAmx };

std::string_view level_name(Level level);   // as LOCKSTEP_CPU spells it: "avx512_bf16"
std::string_view level_title(Level level);  // as people spell it: "AVX512-BF16"
std::optional<Level> level_from_name(std::string_view name);

// The bits that matter, gathered apart from the decisions so that the decisions can be tested on any machine.
struct Facts {
  bool avx2 = false, avx512 = false, avx512_bf16 = false;
  bool amx_bf16 = false;     // CPUID leaf 7 and XCR0 both say so
  bool amx_palette = false;  // CPUID leaf 0x1D describes palette 1: some virtual machines hide it
  bool amx_usable = false;   // the kernel lets this process use tile data, and a product on tiles came out right
  bool neon_bf16 = false;    // 64-bit ARM with FEAT_BF16
};

Facts read_facts();  // asks the kernel for the tiles when the processor has them
Level best_level(const Facts& facts);

// `forced` is the value of LOCKSTEP_CPU (empty: none). Unknown names and levels beyond the machine are errors.
Level choose_level(const Facts& facts, std::string_view forced);

// The highest level oneDNN may use. Without leaf 0x1D oneDNN 2.6.3 configures empty tiles and dies with SIGILL.
Level onednn_limit(Level level, const Facts& facts);

// Whether vcvtneps2bf16 exists and is allowed: set by active_level(), read inside kernels.
inline bool rounds_bf16_in_hardware = false;

// The level of this process: chosen once, from the environment, and applied to Highway and oneDNN.
Level active_level();

// Whether products of bf16 values are made of them as they are; else they are widened to f32.
inline bool multiplies_bf16(Level level) {
  return level == Level::kNeonBf16 || level >= Level::kAvx512Bf16;
}

}  // namespace lockstep::cpu
