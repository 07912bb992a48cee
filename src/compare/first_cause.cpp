#include "compare/first_cause.h"

#include <algorithm>
#include <cmath>

#include "compare/alignment.h"
#include "compare/diagnose.h"
#include "compare/divergence.h"
#include "compare/region.h"
#include "compare/work_back.h"

namespace lockstep {
namespace {

bool has_inputs(const RunView& run) {
  return std::any_of(run.records.begin(), run.records.end(),
                     [](const RecordedTensor& record) { return record.role == Role::kInput; });
}

// The candidate with every paired tensor in the reference's layout: families read one layout, not two.
RunView in_layout_of(const RunView& reference, const RunView& candidate, const CompareOptions& options,
                     const Comparison& out) {
  RunView view = candidate;
  for (const PairResult& result : out.results) {
    const RecordedTensor& r = reference.records[result.pair.reference];
    RecordedTensor& c = view.records[result.pair.candidate];
    if (!r.load || !c.load || result.state == PairState::kIncomparable) continue;
    if (result.pair.rule < 0 && r.shape == c.shape) continue;
    const double tolerance = std::max(kFloorFactor * result.noise_floor, result.error.relative);
    const MapRule* rule = result.pair.rule < 0 ? nullptr : &options.map[static_cast<size_t>(result.pair.rule)];
    c.load = [own = c.load, theirs = r.load, rule, tolerance, name = r.key.name] {
      const Tensor tensor = rule ? apply_rule(*rule, own()) : own();
      const Alignment aligned = align(name, tensor, theirs(), tolerance);
      return aligned.comparable ? aligned.candidate : tensor;
    };
    c.shape = r.shape;
  }
  return view;
}

// A list of modules has no code of its own: the caller is the next one above that is a module.
std::string caller_of(const Structure& structure, const std::string& module) {
  std::string up = parent_of(module);
  while (!up.empty() && !structure.is_module(up) && !parent_of(up).empty()) up = parent_of(up);
  return up.empty() ? "pipeline" : up;
}

}  // namespace

void explain_first(const RunView& reference, const RunView& candidate, const Structure& structure,
                   const CompareOptions& options, const std::function<bool(size_t)>& is_good, double unit,
                   Comparison& out) {
  const PairResult& result = out.results[out.first->result];
  const size_t record = result.pair.reference;
  const RunView view = in_layout_of(reference, candidate, options, out);
  std::map<size_t, size_t> partners;
  for (const PairResult& each : out.results) partners[each.pair.reference] = each.pair.candidate;
  const auto partner = [&partners](size_t i) {
    const auto found = partners.find(i);
    return found == partners.end() ? SIZE_MAX : found->second;
  };
  // A run without inputs was recorded by hand: what it left out before the bad tensor is taken to be right, and a
  // formula that then explains the bad one to the last digit proves it.
  const bool by_hand = !has_inputs(candidate);
  const auto items_of = [&](size_t of) {
    return gather_items(reference, structure, of, partner, is_good,
                        [&](size_t i) { return by_hand && partner(i) == SIZE_MAX; });
  };
  Case failing(reference, view, structure, record, result.pair.candidate);
  failing.partner = partner;
  failing.items = items_of(record);
  for (const Item& item : failing.items)
    if (item.relation != Relation::kEarlier && !item.assumed && out.first->good_inputs.size() < 6)
      out.first->good_inputs.push_back(item.label());
  failing.weights_r = options.weights_reference;
  failing.weights_c = options.weights_candidate;
  failing.isolated = result.isolated;
  failing.error = result.error.relative;
  failing.tolerance = std::min(std::max(2e-5, 6 * unit), std::isfinite(failing.error) ? failing.error / 4 : 1);
  if (failing.r.shape == failing.c.shape)
    out.first->region = describe_region(failing.name, failing.c, failing.r, kFloorFactor * result.noise_floor).words;
  if (auto input = work_back(failing)) {
    // What a layer is given may have been given to its parents first: the code to read is where it was made.
    input->record = first_with_these_values(reference, input->record);
    Case fed(reference, view, structure, input->record, result.pair.candidate);
    fed.r = std::move(input->reference), fed.c = std::move(input->candidate);
    fed.partner = partner;
    fed.items = items_of(input->record);
    fed.weights_r = failing.weights_r, fed.weights_c = failing.weights_c;
    fed.isolated = failing.isolated;
    fed.error = relative_error(fed.c.v, fed.r.v);
    fed.tolerance = input->tolerance;
    out.causes = diagnose(fed);
    if (!out.causes.empty() || input->from.size() > 1) {
      out.first->kind = "glue";
      out.first->parent = fed.role == Role::kInput ? caller_of(structure, fed.module) : fed.module;
      out.first->worked_back_from = std::move(input->from);
    }
  }
  if (out.causes.empty()) out.causes = diagnose(failing);
  const auto inputs = structure.records_of(failing.module, Role::kInput, record);
  out.first->input_unknown = by_hand || (!inputs.empty() && std::all_of(inputs.begin(), inputs.end(), [&](size_t i) {
                                           return partner(i) == SIZE_MAX;
                                         }));
  if (out.causes.empty()) return;
  if (out.causes[0].blame == Blame::kWeights) out.first->kind = "weights";
  if (out.causes[0].blame == Blame::kCapture && result.isolated) out.first->kind = "capture";
}

}  // namespace lockstep
