// What the processor can do, what we let it do, and how far oneDNN may go.
#pragma once
#include <optional>
#include <string_view>

namespace lockstep::cpu {

// Each level includes the ones before it. kPortable needs nothing beyond the compiler's baseline.
enum class Level { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmx };

std::string_view level_name(Level level);   // as LOCKSTEP_CPU spells it: "avx512_bf16"
std::string_view level_title(Level level);  // as people spell it: "AVX512-BF16"
std::optional<Level> level_from_name(std::string_view name);

// The bits that matter, gathered apart from the decisions so that the decisions can be tested on any machine.
struct Facts {
  bool avx2 = false, avx512 = false, avx512_bf16 = false;
  bool amx_bf16 = false;     // CPUID leaf 7 and XCR0 both say so
  bool amx_palette = false;  // CPUID leaf 0x1D describes palette 1: some virtual machines hide it
  bool amx_usable = false;   // the kernel lets this process use tile data, and a product on tiles came out right
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

}  // namespace lockstep::cpu
