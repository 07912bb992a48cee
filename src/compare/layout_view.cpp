#include "compare/layout_view.h"

#include "compare/alignment.h"

namespace lockstep {

RunView in_layout_of(const RunView& reference, const RunView& candidate, const Comparison& comparison) {
  RunView view = candidate;
  for (const PairResult& result : comparison.results) {
    const RecordedTensor& r = reference.records[result.pair.reference];
    RecordedTensor& c = view.records[result.pair.candidate];
    if (!r.load || !c.load || result.state == PairState::kIncomparable) continue;
    if (result.pair.rule < 0 && r.shape == c.shape) continue;
    const double tolerance = result.layout_tolerance;
    std::optional<MapRule> rule;
    if (result.pair.rule >= 0) rule = comparison.map[static_cast<size_t>(result.pair.rule)];
    c.load = [own = c.load, theirs = r.load, rule, tolerance, name = r.key.name] {
      const Tensor tensor = rule ? apply_rule(*rule, own()) : own();
      const Alignment aligned = align(name, tensor, theirs(), tolerance);
      return aligned.comparable ? aligned.candidate : tensor;
    };
    c.shape = r.shape;
  }
  return view;
}

}  // namespace lockstep
