#include "compare/record_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {

std::vector<std::string> names_to_record(const RunView& reference, const RunView& candidate, const Structure& structure,
                                         const std::function<size_t(size_t)>& partner, size_t record) {
  constexpr size_t kMostNames = 12, kMostInside = 24;
  std::vector<std::string> names;
  const auto add = [&](size_t i) {
    const size_t other = partner(i);
    // What the candidate has no partner for cannot be asked for by the reference's name.
    const bool there =
        reference.records[i].load && (other >= candidate.records.size() || candidate.records[other].load);
    const std::string& name = reference.records[i].key.name;
    if (!there && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  add(record);
  const std::string& module = structure.site(record).module;
  if (module.empty()) {  // a stage of the pipeline: the stages before it
    for (size_t i = record, seen = 0; i-- > 0 && seen < 4;)
      if (structure.site(i).module.empty()) add(i), ++seen;
    return names;
  }
  const std::string parent = parent_of(module);
  for (const size_t i : structure.records_of(module, Role::kInput, record)) add(i);
  for (const size_t i : structure.records_of(parent, Role::kInput, record))
    if (i < record) add(i);
  const bool glue = reference.records[record].role == Role::kInput || structure.is_container(module);
  const std::string& scope =
      structure.is_container(module) && reference.records[record].role == Role::kOutput ? module : parent;
  size_t seen = 0;
  if (glue)
    for (const size_t i : structure.records_inside(scope, record)) {
      if (++seen > kMostInside) break;
      add(i);
    }
  if (names.size() <= kMostNames || scope.empty()) return names;
  return {reference.records[record].key.name, scope, scope + ".*"};
}

std::string record_command(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ",") + name;
  return fmt::format("lockstep record --inputs --full '{}'", list);
}

}  // namespace lockstep
