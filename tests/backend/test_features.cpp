#include "backend/cpu/features.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "backend/backend.h"
#include "backend/cases.h"
#include "base/error.h"
#include "base/platform/executable.h"

namespace lockstep::cpu {
namespace {

constexpr Facts kZen4 = {.avx2 = true, .avx512 = true, .avx512_bf16 = true};
constexpr Facts kSapphireRapids = {
    .avx2 = true, .avx512 = true, .avx512_bf16 = true, .amx_bf16 = true, .amx_palette = true, .amx_usable = true};

TEST(CpuFeatures, TheBestLevelFollowsTheFacts) {
  EXPECT_EQ(best_level({}), Level::kPortable);
  EXPECT_EQ(best_level({.avx2 = true}), Level::kAvx2);
  EXPECT_EQ(best_level({.avx2 = true, .avx512 = true}), Level::kAvx512);
  EXPECT_EQ(best_level(kZen4), Level::kAvx512Bf16);
  EXPECT_EQ(best_level(kSapphireRapids), Level::kAmx);
}

TEST(CpuFeatures, TilesMustBeAllowedAndRight) {
  Facts facts = kSapphireRapids;
  facts.amx_usable = false;
  EXPECT_EQ(best_level(facts), Level::kAvx512Bf16);
}

TEST(CpuFeatures, OneDnnStaysBelowTilesWithoutTheirPalette) {
  Facts hidden = kSapphireRapids;
  hidden.amx_palette = false;
  EXPECT_EQ(best_level(hidden), Level::kAmx);  // our own tiles set palette 1 themselves
  EXPECT_EQ(onednn_limit(Level::kAmx, hidden), Level::kAvx512Bf16);
  EXPECT_EQ(onednn_limit(Level::kAmx, kSapphireRapids), Level::kAmx);
  EXPECT_EQ(onednn_limit(Level::kAvx2, hidden), Level::kAvx2);
}

TEST(CpuFeatures, AForcedLevelIsObeyedOrRefused) {
  EXPECT_EQ(choose_level(kZen4, "avx2"), Level::kAvx2);
  EXPECT_EQ(choose_level(kZen4, "avx512_bf16"), Level::kAvx512Bf16);
  EXPECT_EQ(choose_level(kZen4, ""), Level::kAvx512Bf16);
  EXPECT_THROW(choose_level(kZen4, "amx"), Error);
  EXPECT_THROW(choose_level(kZen4, "avx1024"), Error);
  EXPECT_THROW(choose_level({}, "avx2"), Error);
}

TEST(CpuFeatures, LevelNamesRoundTrip) {
  for (const Level level : {Level::kPortable, Level::kAvx2, Level::kAvx512, Level::kAvx512Bf16, Level::kAmx})
    EXPECT_EQ(level_from_name(level_name(level)), level);
  EXPECT_FALSE(level_from_name("AVX2"));
}

// The level belongs to the process: each one this machine can run tests all kernels again in a process of its own.
class ForcedLevel : public ::testing::TestWithParam<Level> {};

TEST_P(ForcedLevel, EveryKernelAgreesWithTheReference) {
  if (std::getenv("LOCKSTEP_TEST_FORCED_LEVEL")) GTEST_SKIP() << "already inside a forced process";
  if (testing::on_a_device()) GTEST_SKIP() << "the backend under test is not the CPU's";
  if (GetParam() > best_level(read_facts())) GTEST_SKIP() << "this machine has no " << level_title(GetParam());
  if (GetParam() == active_level()) return;  // this process runs at that level, and these tests beside this one
  const std::string self = own_program().string();
  const std::string command =
      "OMP_WAIT_POLICY=passive LOCKSTEP_TEST_FORCED_LEVEL=1 LOCKSTEP_CPU=" + std::string(level_name(GetParam())) +
      " '" + self + "' --gtest_filter='*Kernel*:Linear*:Attention*:*Mixed*:-*ForcedLevel*' --gtest_brief=1";
  EXPECT_EQ(std::system(command.c_str()), 0) << "the failures are printed above";
}
INSTANTIATE_TEST_SUITE_P(All, ForcedLevel,
                         ::testing::Values(Level::kPortable, Level::kAvx2, Level::kAvx512, Level::kAvx512Bf16,
                                           Level::kAmx),
                         [](const auto& info) { return std::string(level_name(info.param)); });

TEST(CpuBackend, DescribesItself) {
  const std::string text = make_backend("cpu", 1)->description();
  EXPECT_EQ(text, "cpu, " + std::string(level_title(active_level())) + ", 1 thread");
}

TEST(CpuBackend, RefusesMoreThreadsThanThereAre) {
  EXPECT_THROW(make_backend("cpu", 100000), Error);
  EXPECT_THROW(make_backend("cpu", -1), Error);
}

}  // namespace
}  // namespace lockstep::cpu
