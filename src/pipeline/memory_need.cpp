#include "pipeline/memory_need.h"

#include <algorithm>
#include <limits>

#include "backend/devices.h"
#include "base/error.h"
#include "pipeline/denoise.h"
#include "tensor/rehearsal.h"
#include "tensor/storage.h"

namespace lockstep {
namespace {

constexpr int kSteps = kStepsAhead + 1;  // a full round of modulations made ahead, and the start of the next

class DeafTap final : public Tap {
 public:
  explicit DeafTap(const Tap& tap) : tap_(tap) {}
  bool wants(std::string_view name) const override { return tap_.wants(name); }
  std::optional<Tensor> offer(const TensorKey&, const Tensor&) override { return std::nullopt; }

 private:
  const Tap& tap_;
};

std::string hint_for(std::string_view stage) {
  if (stage == "decode") return "a higher --memory-limit, --vae-tiling or a smaller image";
  if (stage == "denoise") return "a higher --memory-limit, --quantize 4 or --dtype bf16";
  return "a higher --memory-limit or --dtype bf16";
}

}  // namespace

MemoryNeed memory_need(const ModelFolder& model, Backend& backend, const GenerateSettings& settings,
                       const std::vector<GenerateRequest>& requests, const AfterGenerate& after) {
  std::vector<GenerateRequest> short_requests = requests;
  for (GenerateRequest& request : short_requests) {
    request.steps = std::min(request.steps, kSteps);
    if (request.sigmas.size() > kSteps) request.sigmas.resize(kSteps);
  }
  GenerateSettings silent = settings;
  silent.watch = nullptr;
  silent.shelf = nullptr;  // what a rehearsal loads is empty
  std::optional<DeafTap> deaf;
  if (settings.tap) silent.tap = &deaf.emplace(*settings.tap);
  const Rehearsal rehearsal;
  backend.reset_peak();
  MemoryNeed need;
  std::string stage;
  const auto look = [&] {  // whatever raised the peak since the last look did so in the stage of that time
    if (const uint64_t peak = backend.memory().peak_bytes; peak > need.bytes) need = {peak, stage};
  };
  silent.progress = [&](std::string_view name, int64_t, int64_t) {
    look();
    stage = name;
  };
  {
    const std::vector<GeneratedImage> images = generate(model, backend, silent, short_requests);
    look();
    stage = "output";
    if (after) after(images);
    look();
  }
  backend.reset_peak();
  return need;
}

namespace {

// Where all weights do not fit, as many as do stay on the device and the others travel: more slowly, but it works.
MemoryNeed need_within(uint64_t limit, const ModelFolder& model, Backend& backend, const GenerateSettings& settings,
                       const std::vector<GenerateRequest>& requests, const AfterGenerate& after) {
  const MemoryNeed all = memory_need(model, backend, settings, requests, after);
  const uint64_t rest = all.bytes - std::min(all.bytes, backend.most_weight_bytes());
  if (all.bytes <= limit || rest >= limit || !backend.hold_weights(limit - rest)) return all;
  const MemoryNeed less = memory_need(model, backend, settings, requests, after);
  if (less.bytes <= limit) return less;
  // The peak may be elsewhere now: what is still too much comes off the weights.
  const uint64_t over = less.bytes - limit;
  if (rest + over < limit) backend.hold_weights(limit - rest - over);
  return memory_need(model, backend, settings, requests, after);
}

}  // namespace

std::unique_ptr<Backend> choose_backend(const std::string& device, int threads, const ModelFolder& model,
                                        const GenerateSettings& settings, const std::vector<GenerateRequest>& requests,
                                        std::string& why) {
  const auto fits = [&](Backend& backend) {
    const uint64_t limit = memory_limit();
    const uint64_t free = limit ? std::min(limit, backend.available_bytes()) : backend.available_bytes();
    const MemoryNeed need = need_within(free, model, backend, settings, requests, {});
    if (need.bytes > free)
      why = backend.description() + " has " + std::to_string(free) + " bytes to give, and this call needs " +
            std::to_string(need.bytes);
    return need.bytes <= free;
  };
  if (device != "auto") {
    std::unique_ptr<Backend> backend = make_backend(device, threads);
    if (backend->available_bytes() != std::numeric_limits<uint64_t>::max()) fits(*backend);
    return backend;
  }
  try {
    std::unique_ptr<Backend> gpu = make_backend(first_gpu());
    if (fits(*gpu)) return gpu;
  } catch (const Error& e) {
    if (e.code() != Code::kDevice) throw;
    why = e.what();
  }
  return make_backend("cpu", threads);
}

void check_memory_limit(const ModelFolder& model, Backend& backend, const GenerateSettings& settings,
                        const std::vector<GenerateRequest>& requests, const AfterGenerate& after) {
  const uint64_t limit = memory_limit();
  if (!limit) return;
  const MemoryNeed need = need_within(limit, model, backend, settings, requests, after);
  if (need.bytes > limit)
    fail(Code::kMemory, "generate",
         "the memory limit is below what this call needs (most of it for: " + need.stage + ")",
         {.expected = "at least " + std::to_string(need.bytes) + " bytes",
          .got = std::to_string(limit),
          .hint = hint_for(need.stage)});
}

}  // namespace lockstep
