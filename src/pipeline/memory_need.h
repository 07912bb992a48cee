// How much memory a call of generate() takes for tensors, found before it starts.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pipeline/generate.h"

namespace lockstep {

struct MemoryNeed {
  uint64_t bytes = 0;  // at most at once: weights (packed, or read in place from the file), activations, scratch
  std::string stage;   // the one that takes it
};

using AfterGenerate = std::function<void(const std::vector<GeneratedImage>& images)>;  // what the caller does next

// Loads every stage and takes two steps of every request, without reading or computing anything. Whoever listens to the
// run is asked what it wants, since that decides which tensors are made, and is offered nothing.
MemoryNeed memory_need(const ModelFolder& model, Backend& backend, const GenerateSettings& settings,
                       const std::vector<GenerateRequest>& requests, const AfterGenerate& after = {});

// The backend for `device`: "auto" takes the first GPU when CUDA can be used and this call's weights and activations
// fit its free memory (and the limit that is set), else the CPU; any other name goes to make_backend(). `why` says what
// auto found.
std::unique_ptr<Backend> choose_backend(const std::string& device, int threads, const ModelFolder& model,
                                        const GenerateSettings& settings, const std::vector<GenerateRequest>& requests,
                                        std::string& why);

// memory_need() against the limit that is set: Error{kMemory} with the number needed, before any work is done.
void check_memory_limit(const ModelFolder& model, Backend& backend, const GenerateSettings& settings,
                        const std::vector<GenerateRequest>& requests, const AfterGenerate& after = {});

}  // namespace lockstep
