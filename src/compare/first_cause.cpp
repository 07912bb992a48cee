#include "compare/first_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/diagnose.h"
#include "compare/divergence.h"
#include "compare/layout_view.h"
#include "compare/region.h"
#include "compare/work_back.h"

namespace lockstep {
namespace {

// A constant or a factor for each channel says what is different, not what was done.
bool names_a_mistake(const std::vector<Finding>& causes) {
  if (causes.empty() || causes[0].cause.starts_with("affine.")) return false;
  for (const char* vague : {"linear.different_bias", "linear.input_parts_exchanged", "timestep.factor"})
    if (causes[0].cause == vague) return false;  // another input, seen through the layer, looks the same
  return true;
}

}  // namespace

std::string name_in_between(const RunView& reference, const std::function<size_t(size_t)>& partner, size_t record) {
  constexpr size_t kMost = 4;
  std::vector<std::string> names;
  std::string last;
  for (size_t i = record; i-- > 0;) {
    const std::string& name = reference.records[i].key.name;
    if (partner(i) != SIZE_MAX) {
      last = name;
      break;
    }
    const std::string label = (reference.records[i].role == Role::kInput ? "the input of " : "") + name;
    if (std::find(names.begin(), names.end(), label) == names.end()) names.push_back(label);
  }
  if (names.empty()) return "";
  std::string list;
  for (size_t i = 0, parts = std::min(kMost, names.size()); i < parts; ++i)
    list += (list.empty() ? "" : ", ") + names[names.size() - 1 - i * names.size() / parts];
  return fmt::format("your run has nothing between {} and this; name more of it, such as {}",
                     last.empty() ? "its beginning" : last, list);
}

void explain_first(const RunView& reference, const RunView& candidate, const Structure& structure,
                   const CompareOptions& options, const std::function<bool(size_t)>& is_good, double unit,
                   Comparison& out) {
  const PairResult& result = out.results[out.first->result];
  const size_t record = result.pair.reference;
  const RunView view = in_layout_of(reference, candidate, out);
  std::map<size_t, size_t> partners;
  for (const PairResult& each : out.results) partners[each.pair.reference] = each.pair.candidate;
  const auto partner = [&partners](size_t i) {
    const auto found = partners.find(i);
    return found == partners.end() ? SIZE_MAX : found->second;
  };
  // A run without inputs was recorded by hand: what it left out before the bad tensor is taken to be right, and a
  // formula that then explains the bad one to the last digit proves it.
  const bool by_hand = has_no_inputs(candidate);
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
  failing.text_of_tokens = options.text_of_tokens;
  failing.isolated = result.isolated;
  failing.error = result.error.relative;
  failing.floor = result.noise_floor;
  failing.tolerance = std::min(std::max(2e-5, 6 * unit), std::isfinite(failing.error) ? failing.error / 4 : 1);
  if (failing.r.shape == failing.c.shape)
    out.first->region =
        describe_region(failing.name, failing.c, failing.r, out.floor_factor * result.noise_floor).words;
  auto input = work_back(failing);
  // Several layers agree that their input is wrong, or a single one could also be wrong itself: then it is asked first.
  const bool surely_fed = input && input->from.size() > 1;
  if (!surely_fed) out.causes = diagnose(failing);
  if (input && (surely_fed || !names_a_mistake(out.causes))) {
    // What a layer is given may have been given to its parents first: the code to read is where it was made.
    const size_t made = first_with_these_values(reference, input->record);
    Case fed(reference, view, structure, made, result.pair.candidate);
    fed.r = std::move(input->reference), fed.c = std::move(input->candidate);
    fed.partner = partner;
    fed.items = items_of(made);
    fed.weights_r = failing.weights_r, fed.weights_c = failing.weights_c;
    fed.isolated = failing.isolated;
    fed.floor = failing.floor;
    fed.error = relative_error(fed.c.v, fed.r.v);
    fed.tolerance = input->tolerance;
    std::vector<Finding> causes = diagnose(fed);
    if (surely_fed || (!causes.empty() && (out.causes.empty() || names_a_mistake(causes)))) {
      out.causes = std::move(causes);
      out.first->kind = "glue";
      out.first->parent = fed.role == Role::kInput ? structure.caller_of(fed.module) : fed.module;
      out.first->worked_back_from = std::move(input->from);
    }
    if (surely_fed && out.causes.empty()) out.causes = diagnose(failing);
  }
  if (!names_a_mistake(out.causes) && !by_hand) {
    // A neighbour that yours did not call (a norm that it skips) is taken to be right too: the reference's formula may
    // need it, and what yours used in its place is then among the rest.
    const std::string scope = failing.role == Role::kInput ? parent_of(failing.module) : failing.module;
    failing.items = gather_items(reference, structure, record, partner, is_good, [&](size_t i) {
      return partner(i) == SIZE_MAX && reference.records[i].role == Role::kOutput &&
             parent_of(structure.site(i).module) == scope;
    });
    const bool any =
        std::any_of(failing.items.begin(), failing.items.end(), [](const Item& item) { return item.assumed; });
    std::vector<Finding> causes = any ? diagnose(failing) : std::vector<Finding>();
    if (names_a_mistake(causes)) out.causes = std::move(causes);
  }
  // The module that makes this in the reference was not called by yours under its name (another was, its code was
  // written out, or it was left out): asked as its result. What it was given is taken to be right; the proof is that a
  // formula fits.
  const bool replaced = !out.causes.empty() && out.causes[0].cause == "stage.replaced";
  const size_t made = first_with_these_values(reference, record);
  const std::string& maker = structure.site(made).module;
  if ((replaced || !names_a_mistake(out.causes)) && failing.role == Role::kInput && made != record &&
      reference.records[made].role == Role::kOutput && !structure.is_container(maker)) {
    Case asked(reference, view, structure, made, result.pair.candidate);
    asked.r.shape = failing.r.shape, asked.c = failing.c;
    asked.partner = partner;
    asked.items = gather_items(reference, structure, made, partner, is_good, [&](size_t i) {
      const bool given = structure.site(i).module == maker && reference.records[i].role == Role::kInput;
      return given ? partner(i) == SIZE_MAX || !is_good(i) : by_hand && partner(i) == SIZE_MAX;
    });
    asked.weights_r = failing.weights_r, asked.weights_c = failing.weights_c;
    asked.error = failing.error, asked.floor = failing.floor, asked.tolerance = failing.tolerance;
    std::vector<Finding> causes = diagnose(asked);
    const auto missing =
        std::find_if(causes.begin(), causes.end(), [](const Finding& f) { return f.cause.ends_with(".missing"); });
    if (replaced && missing != causes.end())
      out.causes = {std::move(*missing), std::move(out.causes[0])};  // which step it was that was left out
    else if (!replaced && names_a_mistake(causes))
      out.causes = std::move(causes);
  }
  const auto inputs = structure.records_of(failing.module, Role::kInput, record);
  out.first->input_unknown =
      by_hand ||
      (!inputs.empty() && std::all_of(inputs.begin(), inputs.end(), [&](size_t i) { return partner(i) == SIZE_MAX; }));
  if (out.causes.empty()) return;
  if (out.causes[0].blame == Blame::kWeights) out.first->kind = "weights";
  if (out.causes[0].blame == Blame::kCapture && result.isolated) out.first->kind = "capture";
}

}  // namespace lockstep
