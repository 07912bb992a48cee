// --profile of generate and edit: times of the engine's own modules. The engine asks whether anybody wants the tensor
// of a module when that module has ended; nobody does, so nothing that is fused comes apart, and the time is noted.
#pragma once
#include <string>
#include <string_view>

#include "tensor/tap.h"
#include "toolbox/profile.h"

namespace lockstep {

class EngineProfile : public Tap {
 public:
  explicit EngineProfile(Tap* inner);  // who really wants tensors; may be null

  bool wants(std::string_view name) const override;
  std::optional<Tensor> offer(const TensorKey& key, const Tensor& tensor) override;
  bool takes_device_tensors() const override { return !inner_ || inner_->takes_device_tensors(); }
  void stage(std::string_view name) const { note(name); }

  // Makes a run of it.
  fs::path write(const fs::path& home, const std::string& name, const Json& details);

 private:
  struct Mark {
    int64_t wall_ns = 0, cpu_ns = 0, live = 0;
  };
  static Mark mark();
  void note(std::string_view name) const;  // what has happened since the last note belongs to this module
  void close_to(size_t depth, const Mark& at) const;

  Tap* inner_;
  // A tap is asked, not told: what it remembers is no part of what it answers.
  mutable ProcessProfile profile_;
  mutable std::map<std::string, int32_t, std::less<>> numbers_;
  mutable std::vector<int32_t> open_;        // calls
  mutable std::vector<std::string> opened_;  // their names
  mutable Mark last_;
  int64_t cpu_at_start_;
};

}  // namespace lockstep
