// What the text encoder made of the prompts drawn last. Pictures of one prompt differ by their seeds, and most share a
// negative prompt: those do without the text encoder, which may then stay unloaded. The pictures have the same bits.
#pragma once
#include <chrono>
#include <map>
#include <string>

#include "pipeline/watch.h"

namespace lockstep {

class KeptPrompts {
 public:
  using Clock = std::chrono::steady_clock;
  // Each holds the rows of the prompt's template too, which are not counted: up to 34 beside those of the prompt.
  static constexpr size_t kMost = 64;
  static constexpr uint64_t kMostBytes = 64 << 20;

  Tensor find(const std::string& key);  // undefined: not kept
  void keep(const std::string& key, const Tensor& rows);
  void forget_unused(Clock::time_point since);
  uint64_t bytes() const { return bytes_; }
  size_t size() const { return kept_.size(); }

 private:
  struct Kept {
    Tensor rows;
    uint64_t bytes = 0;
    Clock::time_point used;
    uint64_t turn = 0;  // of its last use: the clock may stand still between two
  };
  void forget_oldest();

  std::map<std::string, Kept> kept_;
  uint64_t bytes_ = 0, turn_ = 0;
};

// The prompts of one run. Nobody learns from the time of an answer what others have asked for: each client has its own.
class PromptsOfRun : public PromptShelf {
 public:
  PromptsOfRun(KeptPrompts& kept, std::string prefix, std::vector<std::string> clients)
      : kept_(kept), prefix_(std::move(prefix)), clients_(std::move(clients)) {}
  Tensor find(size_t request, const std::string& prompt) override { return kept_.find(key(request, prompt)); }
  void keep(size_t request, const std::string& prompt, const Tensor& rows) override {
    kept_.keep(key(request, prompt), rows);
  }

 private:
  std::string key(size_t request, const std::string& prompt) const;

  KeptPrompts& kept_;
  std::string prefix_;                // model, device and number format
  std::vector<std::string> clients_;  // by request
};

}  // namespace lockstep
