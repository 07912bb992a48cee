#include "pipeline/stages.h"

#include "base/interrupt.h"

namespace lockstep {

using nn::Ctx;
using nn::Execution;

Execution Stages::execution(int step, std::string_view pass) const {
  return {.backend = backend_,
          .dtype = settings_.dtype,
          .tap = settings_.tap,
          .step = step,
          .pass = pass,
          .inputs = dynamic_cast<InputTap*>(settings_.tap)};
}

Tensor Stages::tap(std::string_view name, Tensor tensor, int step, std::string_view pass) const {
  const Execution stage = execution(step, pass);
  return Ctx(stage, name).tap(std::move(tensor));
}

nn::LoadProgress Stages::loading(const char* stage) const {
  constexpr int64_t kMegabyte = 1'000'000;
  return [this, stage](int64_t done, int64_t total) {
    check_interrupt("generate");
    settings_.progress(stage, done / kMegabyte, total / kMegabyte);
  };
}

}  // namespace lockstep
