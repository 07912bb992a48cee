// A tensor that a port names by hand and that differs has no content to be recognised by. Where one of the reference's
// stages, done otherwise, makes it to the last digits, that says both which tensor it is and what is wrong.
#pragma once
#include <functional>

#include "compare/comparison.h"
#include "diagnose/case/structure.h"

namespace lockstep {

struct ReplayedPairing {
  ReplayedTensor tensor;
  std::optional<FoundMap> map;  // with that tensor's partner put right; nothing where the map has it already
};

ReplayedPairing pair_by_replay(const RunView& reference, const RunView& candidate, const Structure& structure,
                               const CompareOptions& options, const std::function<bool(size_t)>& is_good,
                               const Comparison& compared);

}  // namespace lockstep
