#include "compare/diagnose.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/interrupt.h"
#include "compare/families/tokens.h"

namespace lockstep {
namespace {

constexpr size_t kMostItems = 160;
constexpr size_t kMostCauses = 3;

// Formulas are read in the module that holds the bad tensor: its own path in front of every name only hides them.
std::string without_path(std::string text, const std::string& path) {
  if (path.empty()) return text;
  for (size_t at = text.find(path + "."); at != std::string::npos; at = text.find(path + ".", at))
    text.erase(at, path.size() + 1);
  return text;
}

}  // namespace

std::string Item::label() const {
  return role == Role::kInput ? "input " + name : name;
}

Case::Case(const RunView& reference, const RunView& candidate, const Structure& structure, size_t reference_record,
           size_t candidate_record)
    : reference_(reference),
      candidate_(candidate),
      structure_(structure),
      reference_record_(reference_record),
      candidate_record_(candidate_record) {
  const RecordedTensor& record = reference.records[reference_record];
  name = record.key.name;
  role = record.role;
  step = record.key.step;
  module = structure.site(reference_record).module;
  is_leaf = !module.empty() && !structure.is_container(module);
  if (record.load) r = values_from(record.load());
  if (candidate.records[candidate_record].load) c = values_from(candidate.records[candidate_record].load());
  if (same_size_shape(r.shape, c.shape)) c.shape = r.shape;
}

const Values& Case::load_reference(size_t record) {
  auto& slot = (*loaded_r_)[record];
  if (slot.empty() && reference_.records[record].load) slot = values_from(reference_.records[record].load());
  return slot;
}

const Values& Case::load_candidate(size_t record) {
  auto& slot = (*loaded_c_)[record];
  if (slot.empty() && record < candidate_.records.size() && candidate_.records[record].load)
    slot = values_from(candidate_.records[record].load());
  return slot;
}

const Values& Case::reference_of(const Item& item) {
  return load_reference(item.reference);
}

const Values& Case::candidate_of(const Item& item) {
  return item.assumed ? load_reference(item.reference) : load_candidate(item.candidate);
}

std::optional<Values> Case::weight_r(const std::string& weight_name) const {
  return weights_r ? weights_r->find(weight_name) : std::nullopt;
}

std::optional<Values> Case::weight_c(const std::string& weight_name) const {
  return weights_c ? weights_c->find(weight_name) : weight_r(weight_name);
}

std::string Case::where() const {
  const std::string& place = candidate_.records[candidate_record_].where;
  const std::string who = module.empty() ? name : module;
  return place.empty() ? who : who + " (" + place + ")";
}

Case Case::with_pair(Values reference, Values candidate) const {
  Case out = *this;
  out.r = std::move(reference), out.c = std::move(candidate);
  out.error = relative_error(out.c.v, out.r.v);
  return out;
}

std::vector<Item> gather_items(const RunView& reference, const Structure& structure, size_t record,
                               const std::function<size_t(size_t)>& partner, const std::function<bool(size_t)>& is_good,
                               const std::function<bool(size_t)>& is_assumed) {
  std::vector<Item> out;
  std::set<size_t> seen{record};
  const size_t own = partner(record);
  // Later in the reference, but yours had made it by then: two steps may have changed places.
  const auto made_early = [&](size_t i) { return own != SIZE_MAX && partner(i) != SIZE_MAX && partner(i) < own; };
  const auto add = [&](size_t i, Relation relation) {
    if (i == record || (i > record && !made_early(i)) || out.size() >= kMostItems || !seen.insert(i).second) return;
    const bool assumed = is_assumed && is_assumed(i);
    if (!assumed && !is_good(i)) return;
    const RecordedTensor& r = reference.records[i];
    if (!r.load || r.shape.empty()) return;
    out.push_back({i, partner(i), r.key.name, r.role, relation, r.shape, assumed});
  };
  const std::string& module = structure.site(record).module;
  const bool is_input = reference.records[record].role == Role::kInput;
  if (!module.empty()) {
    if (!is_input) {
      // Of many arguments (a list of caches) the first few come first: they must not crowd out what was made inside.
      const std::vector<size_t> given = structure.records_of(module, Role::kInput, record);
      for (size_t i = 0; i < std::min<size_t>(given.size(), 4); ++i) add(given[i], Relation::kOwnInput);
      for (const size_t i : structure.records_inside(module, record)) add(i, Relation::kChild);
      for (const size_t i : given) add(i, Relation::kOwnInput);
    } else {
      // Arguments of the same call that came before: often made together.
      for (const size_t i : structure.records_of(module, Role::kInput, record)) add(i, Relation::kSibling);
    }
    std::string parent = parent_of(module);
    for (int level = 0; level < 3 && !parent.empty(); ++level, parent = parent_of(parent)) {
      for (const size_t i : structure.records_of(parent, Role::kInput, record))
        add(i, level == 0 ? Relation::kParentInput : Relation::kEarlier);
      size_t taken = 0;
      for (const size_t i : structure.records_inside(parent, record)) {
        if (++taken > 120) break;
        add(i, level == 0 ? Relation::kSibling : Relation::kEarlier);
      }
    }
  }
  // Neighbours that yours ran before this one.
  for (size_t i = record + 1; i < std::min(record + 24, reference.records.size()) && !module.empty(); ++i)
    if (made_early(i) && parent_of(structure.site(i).module) == parent_of(module) && same_call(reference, i, record))
      add(i, Relation::kSibling);
  // Stages of the pipeline, and whatever ran just before.
  size_t stages = 0;
  for (size_t i = record; i-- > 0 && stages < 16;)
    if (structure.site(i).module.empty()) add(i, Relation::kEarlier), ++stages;
  for (size_t i = record, count = 0; i-- > 0 && count < 24; ++count) add(i, Relation::kEarlier);
  // One tensor under two names is one tensor: what the candidate recorded under the other needs no assumption.
  const auto twin = [&](const Item& item, size_t other) {
    const RecordedTensor &a = reference.records[item.reference], &b = reference.records[other];
    return !a.checksum.empty() && a.checksum == b.checksum && a.shape == b.shape;
  };
  const std::vector<Item> all = out;
  std::erase_if(out, [&](const Item& item) {
    if (!item.assumed || item.relation == Relation::kOwnInput) return false;
    return twin(item, record) || std::any_of(all.begin(), all.end(), [&](const Item& other) {
             return !other.assumed && twin(item, other.reference);
           });
  });
  return out;
}

Findings explain_pair(Case& pair) {
  Findings out;
  for (const Family& family : families())
    if (family.pair_only) family.search(pair, out);
  return out;
}

bool is_right_on_its_inputs(Case& failing) {
  if (failing.r.empty() || failing.r.shape != failing.c.shape) return false;
  return std::any_of(families().begin(), families().end(),
                     [&](const Family& family) { return family.confirm && family.confirm(failing); });
}

std::optional<double> error_on_its_inputs(Case& stage, double small_enough) {
  if (stage.r.empty() || stage.r.shape != stage.c.shape) return std::nullopt;
  Findings ignored;
  stage.only_local = true;
  for (const Family& family : families()) {
    if (!family.recomputes) continue;
    family.search(stage, ignored);
    if (stage.local_error && *stage.local_error <= small_enough) break;
  }
  return stage.local_error;
}

std::vector<Finding> diagnose(Case& failing) {
  Findings found;
  if (failing.r.empty() || failing.c.empty()) return found;
  if (failing.r.size() != failing.c.size()) {  // other shapes have nothing to fit; texts of other lengths have words
    search_tokens(failing, found);
    search_other_ids(failing, found);
    return found;
  }
  for (const Family& family : families()) {
    check_interrupt("diagnose");
    family.search(failing, found);
  }
  const std::string scope =
      failing.role == Role::kInput || failing.is_leaf ? parent_of(failing.module) : failing.module;
  for (Finding& finding : found) {
    if (finding.look_at.empty()) finding.look_at = failing.where();
    if (finding.blame == Blame::kWeights) continue;  // weights are named in full
    finding.explanation = without_path(std::move(finding.explanation), scope);
    finding.fix = without_path(std::move(finding.fix), scope);
  }
  // What is left unexplained counts by orders of magnitude beyond the tolerance; then the simplest wins.
  const auto cost = [&](const Finding& finding) {
    const double excess = std::max(1.0, finding.residual / std::max(failing.tolerance, 1e-12));
    return finding.complexity + 2 * std::log10(excess);
  };
  std::stable_sort(found.begin(), found.end(), [&](const Finding& a, const Finding& b) { return cost(a) < cost(b); });
  std::vector<Finding> best;
  for (Finding& finding : found) {
    const bool repeated =
        std::any_of(best.begin(), best.end(), [&](const Finding& b) { return b.cause == finding.cause; });
    if (!repeated && best.size() < kMostCauses) best.push_back(std::move(finding));
  }
  for (size_t i = 0; i < best.size(); ++i) {
    const double next = i + 1 < best.size() ? std::max(best[i + 1].residual, best[i].residual) : failing.error;
    best[i].confidence = next / std::max(best[i].residual, 1e-12);
  }
  return best;
}

}  // namespace lockstep
