#include "backend/cpu/features.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "backend/cpu/onednn.h"
#include "backend/cpu/panel.h"
#include "base/error.h"
#include "hwy/targets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace lockstep::cpu {
namespace {

struct LevelNames {
  std::string_view name, title;
};
constexpr std::array<LevelNames, 6> kLevels = {{{"portable", "portable code"},
                                                {"neon_bf16", "NEON with BF16"},
                                                {"avx2", "AVX2"},
                                                {"avx512", "AVX-512"},
                                                {"avx512_bf16", "AVX512-BF16"},
                                                {"amx", "AMX"}}};

#if defined(__x86_64__)
struct Cpuid {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Cpuid cpuid(uint32_t leaf, uint32_t subleaf) {
  Cpuid r;
  if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
  return r;
}

uint64_t enabled_state() {  // XCR0: which register files the system saves
  if (!(cpuid(1, 0).ecx >> 27 & 1u)) return 0;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool ask_for_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

#if defined(__aarch64__)
bool has_bf16_dot() {
#if defined(__linux__)
  return ::getauxval(AT_HWCAP2) >> 14 & 1;  // HWCAP2_BF16
#elif defined(__APPLE__)
  int has = 0;
  size_t bytes = sizeof has;
  return ::sysctlbyname("hw.optional.arm.FEAT_BF16", &has, &bytes, nullptr, 0) == 0 && has != 0;
#else
  return false;
#endif
}
#endif

void limit_highway(Level level) {
  int64_t disabled = 0;
  if (level < Level::kAvx512) disabled |= HWY_AVX3 | HWY_AVX3_DL;
  if (level < Level::kAvx2) disabled |= HWY_AVX2 | HWY_SSE4 | HWY_SSSE3;
  if (disabled) hwy::DisableTargets(disabled);
}

}  // namespace

std::string_view level_name(Level level) {
  return kLevels[static_cast<size_t>(level)].name;
}

std::string_view level_title(Level level) {
  return kLevels[static_cast<size_t>(level)].title;
}

std::optional<Level> level_from_name(std::string_view name) {
  for (size_t i = 0; i < kLevels.size(); ++i)
    if (kLevels[i].name == name) return static_cast<Level>(i);
  return std::nullopt;
}

Facts read_facts() {
  Facts facts;
#if defined(__x86_64__)
  // Highway's own detection decides what Highway's code may run; ours only adds what it does not know.
  const int64_t targets = hwy::SupportedTargets();
  facts.avx2 = targets & HWY_AVX2;
  facts.avx512 = targets & HWY_AVX3;
  const uint64_t state = enabled_state();
  const Cpuid leaf7 = cpuid(7, 0);
  facts.avx512_bf16 = facts.avx512 && leaf7.eax >= 1 && (cpuid(7, 1).eax >> 5 & 1u);
  constexpr uint64_t kTileState = uint64_t{3} << 17;
  facts.amx_bf16 = (leaf7.edx >> 22 & 1u) && (leaf7.edx >> 24 & 1u) && (state & kTileState) == kTileState;
  facts.amx_palette = facts.amx_bf16 && cpuid(0x1D, 1).eax != 0;
  facts.amx_usable = facts.amx_bf16 && facts.avx512_bf16 && ask_for_tiles() && tiles_multiply_right();
#elif defined(__aarch64__)
  facts.neon_bf16 = has_bf16_dot();
#endif
  return facts;
}

Level best_level(const Facts& facts) {
  if (facts.neon_bf16) return Level::kNeonBf16;
  if (!facts.avx2) return Level::kPortable;
  if (!facts.avx512) return Level::kAvx2;
  if (!facts.avx512_bf16) return Level::kAvx512;
  return facts.amx_bf16 && facts.amx_usable ? Level::kAmx : Level::kAvx512Bf16;
}

Level choose_level(const Facts& facts, std::string_view forced) {
  const Level best = best_level(facts);
  if (forced.empty()) return best;
  const std::optional<Level> level = level_from_name(forced);
  if (!level)
    fail(Code::kUsage, "cpu", "LOCKSTEP_CPU names no instruction set",
         {.expected = "portable, neon_bf16, avx2, avx512, avx512_bf16 or amx", .got = std::string(forced)});
  if (*level > best || (*level == Level::kNeonBf16 && !facts.neon_bf16))
    fail(Code::kDevice, "cpu", "LOCKSTEP_CPU asks for more than this machine has",
         {.expected = "at most " + std::string(level_name(best)), .got = std::string(forced)});
  return *level;
}

Level onednn_limit(Level level, const Facts& facts) {
  return level == Level::kAmx && !facts.amx_palette ? Level::kAvx512Bf16 : level;
}

Level active_level() {
  static const Level level = [] {
    const Facts facts = read_facts();
    const char* forced = std::getenv("LOCKSTEP_CPU");
    const Level chosen = choose_level(facts, forced ? forced : "");
    limit_highway(chosen);
    OneDnn::limit(onednn_limit(chosen, facts));
    rounds_bf16_in_hardware = chosen >= Level::kAvx512Bf16;
    return chosen;
  }();
  return level;
}

}  // namespace lockstep::cpu
