// What a call needs is known before it starts, is what it then uses, and a second pass takes nothing from the system.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/error.h"
#include "pipeline/memory_need.h"
#include "support/sanitized.h"
#include "tensor/storage.h"

namespace {

std::atomic<int64_t> large_blocks = 0;

}  // namespace

// Sanitizers bring their own allocation: there only the pool is counted.
#if !LOCKSTEP_SANITIZED
namespace {

constexpr size_t kLargeBlock = 4096;  // smaller ones are shapes, names and lists

void* counted_block(size_t bytes, size_t alignment) {
  if (bytes >= kLargeBlock) ++large_blocks;
  void* block = alignment > alignof(std::max_align_t)
                    ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                    : std::malloc(bytes ? bytes : 1);
  if (!block) throw std::bad_alloc();
  return block;
}

// Not inlined: where g++ sees free() in a `delete` and not malloc() in its `new`, it takes them for a mismatch.
[[gnu::noinline]] void give_back(void* block) noexcept {
  std::free(block);
}

}  // namespace

void* operator new(size_t bytes) {
  return counted_block(bytes, 1);
}
void* operator new[](size_t bytes) {
  return counted_block(bytes, 1);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return counted_block(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* block) noexcept {
  give_back(block);
}
void operator delete[](void* block) noexcept {
  give_back(block);
}
void operator delete(void* block, size_t) noexcept {
  give_back(block);
}
void operator delete[](void* block, size_t) noexcept {
  give_back(block);
}
void operator delete(void* block, std::align_val_t) noexcept {
  give_back(block);
}
void operator delete(void* block, size_t, std::align_val_t) noexcept {
  give_back(block);
}
#endif

namespace lockstep {
namespace {

ModelFolder tiny_model() {
  return ModelFolder::open(fs::path(LOCKSTEP_SOURCE_DIR) / "models/tiny");
}

GenerateRequest request(int size) {
  GenerateRequest request;
  request.prompt = "a red circle left of a blue square";
  request.negative_prompt = " ";
  request.width = request.height = size;
  request.steps = 3;
  return request;
}

struct LimitGuard {
  ~LimitGuard() { set_memory_limit(0); }
};

struct Case {
  const char *name, *backend;
  DType dtype;
  int bits;
  GuidanceRun guidance;
  int size;
  bool tiling;
};

class MemoryNeeded : public ::testing::TestWithParam<Case> {
 protected:
  GenerateSettings settings() const {
    GenerateSettings settings;
    settings.dtype = GetParam().dtype;
    settings.linears.bits = GetParam().bits;
    settings.guidance = GetParam().guidance;
    if (GetParam().tiling) settings.tiling = models::Tiling{64, 64, 48, 48};  // small, for processors that are emulated
    return settings;
  }
};

TEST_P(MemoryNeeded, IsExactlyWhatTheRunThenTakes) {
  const LimitGuard guard;
  const bool naive = std::string_view(GetParam().backend) == "reference";  // too slow for the larger model
  const ModelFolder model =
      naive ? ModelFolder::open(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/goldens/t2i_f32/model") : tiny_model();
  const std::unique_ptr<Backend> backend = make_backend(GetParam().backend);
  const std::vector<GenerateRequest> requests{request(GetParam().size), request(GetParam().size)};
  const uint64_t before = memory_use().in_use_bytes;
  const MemoryNeed need = memory_need(model, *backend, settings(), requests);
  EXPECT_EQ(memory_use().in_use_bytes, before) << "a rehearsal leaves nothing behind";

  set_memory_limit(need.bytes - 1);
  try {
    check_memory_limit(model, *backend, settings(), requests);
    ADD_FAILURE() << "one byte too few was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kMemory);
    EXPECT_NE(std::string(e.what()).find(std::to_string(need.bytes)), std::string::npos) << e.what();
  }
  EXPECT_EQ(memory_limit(), need.bytes - 1) << "the limit holds again after the rehearsal";

  set_memory_limit(need.bytes);
  reset_peak_memory();
  check_memory_limit(model, *backend, settings(), requests);
  const std::vector<GeneratedImage> images = generate(model, *backend, settings(), requests);
  EXPECT_EQ(memory_use().peak_bytes, need.bytes);
  EXPECT_EQ(images.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(All, MemoryNeeded,
                         ::testing::Values(Case{"f32", "cpu", DType::kF32, 0, GuidanceRun::kAuto, 64, false},
                                           Case{"bf16", "cpu", DType::kBF16, 0, GuidanceRun::kPasses, 64, false},
                                           Case{"four_bits", "cpu", DType::kF32, 4, GuidanceRun::kBatch, 64, false},
                                           Case{"tiled", "cpu", DType::kBF16, 8, GuidanceRun::kPasses, 144, true},
                                           Case{"reference", "reference", DType::kF32, 0, GuidanceRun::kAuto, 16,
                                                false}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MemoryNeeded, ARehearsalDoesNotChangeThePicture) {
  const ModelFolder model = tiny_model();
  const std::unique_ptr<Backend> fresh = make_backend("cpu"), rehearsed = make_backend("cpu");
  const std::vector<GenerateRequest> requests{request(64)};
  memory_need(model, *rehearsed, {}, requests);
  const Tensor a = generate(model, *fresh, {}, requests)[0].pixels,
               b = generate(model, *rehearsed, {}, requests)[0].pixels;
  EXPECT_TRUE(std::ranges::equal(a.contiguous_bytes(), b.contiguous_bytes()));
}

TEST(MemoryNeeded, AListenerIsAskedWhatItWantsAndOfferedNothing) {
  struct Everything final : Tap {
    int offers = 0;
    bool wants(std::string_view) const override { return true; }
    std::optional<Tensor> offer(const TensorKey&, const Tensor&) override {
      ++offers;
      return std::nullopt;
    }
  } tap;
  const ModelFolder model = tiny_model();
  const std::unique_ptr<Backend> backend = make_backend("cpu");
  GenerateSettings settings;
  settings.tap = &tap;
  const MemoryNeed need = memory_need(model, *backend, settings, {request(64)});
  EXPECT_EQ(tap.offers, 0);
  reset_peak_memory();
  generate(model, *backend, settings, {request(64)});
  EXPECT_GT(tap.offers, 0);
  EXPECT_EQ(memory_use().peak_bytes, need.bytes);
}

TEST(SteadyMemory, ASecondForwardPassAllocatesNothing) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int bits : {0, 4}) {
      const ModelFolder model = tiny_model();
      const std::unique_ptr<Backend> backend = make_backend("cpu");
      const models::QwenImageTransformer transformer = model.transformer(*backend, dtype, {.bits = bits});
      const models::Rope rope = models::make_rope(transformer.config(), {{1, 16, 16}}, 24);
      const Tensor latents = Tensor::zeros(dtype, {1, 256, transformer.config().in_channels});
      const Tensor text = Tensor::zeros(dtype, {1, 24, transformer.config().text_width});
      const nn::Execution execution{.backend = *backend, .dtype = dtype};
      const auto pass = [&] {
        const Tensor out = transformer.forward({.latents = latents, .text = text, .timesteps = {0.5f}, .rope = &rope},
                                               nn::Ctx(execution, "transformer"));
      };
      pass();
      const uint64_t from_system = memory_use().system_allocations;
      const int64_t blocks = large_blocks;
      pass();
      EXPECT_EQ(memory_use().system_allocations, from_system) << dtype_name(dtype) << " bits " << bits;
      EXPECT_EQ(large_blocks, blocks) << dtype_name(dtype) << " bits " << bits;
    }
}

// All that has been asked of the system so far: blocks of the pool, and large ones of anything else.
struct Asked {
  uint64_t by_pool = memory_use().system_allocations;
  int64_t large_blocks = ::large_blocks;
};

TEST(SteadyMemory, NothingAfterTheFirstDenoisingStepAsksForMemory) {
  const ModelFolder model = tiny_model();
  for (const GuidanceRun guidance : {GuidanceRun::kPasses, GuidanceRun::kBatch}) {
    const std::unique_ptr<Backend> backend = make_backend("cpu");
    std::vector<Asked> after_step;
    GenerateSettings settings;
    settings.guidance = guidance;
    settings.progress = [&](std::string_view stage, int64_t done, int64_t) {
      if (stage == "denoise" && done > 0) after_step.emplace_back();
    };
    generate(model, *backend, settings, {request(128)});
    ASSERT_EQ(after_step.size(), 3u);
    EXPECT_EQ(after_step[1].by_pool, after_step[2].by_pool);
    EXPECT_EQ(after_step[1].large_blocks, after_step[2].large_blocks);
  }
}

TEST(SteadyMemory, ASecondPictureIsDecodedInTheMemoryOfTheFirst) {
  const ModelFolder model = tiny_model();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::unique_ptr<Backend> backend = make_backend("cpu");
    std::vector<Asked> after_picture;
    GenerateSettings settings;
    settings.dtype = dtype;
    settings.progress = [&](std::string_view stage, int64_t done, int64_t) {
      if (stage == "decode" && done > 0) after_picture.emplace_back();
    };
    generate(model, *backend, settings, {request(64), request(64), request(64)});
    ASSERT_EQ(after_picture.size(), 3u);
    // The pictures themselves are kept, and each may be a new block of the pool.
    EXPECT_LE(after_picture[2].by_pool, after_picture[1].by_pool + 1) << dtype_name(dtype);
    EXPECT_EQ(after_picture[2].large_blocks, after_picture[1].large_blocks) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace lockstep
