#include "diagnose/case/neighbours.h"

#include <algorithm>
#include <set>

namespace lockstep {
namespace {

constexpr size_t kMostItems = 160;

}  // namespace

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

}  // namespace lockstep
