#include "diagnose/case/structure.h"

#include <algorithm>

namespace lockstep {
namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Several outputs of one call are recorded as X.0, X.1, ... without a record of X. A list of modules has such names
// too, but its members run at different times or from different code, or have inputs of their own.
std::set<std::string> tuple_owners(const RunView& run) {
  std::set<std::string> plain, owners, refused;
  std::map<std::string, std::string> inputs;  // name → where
  for (const RecordedTensor& record : run.records) {
    if (record.role == Role::kOutput) plain.insert(record.key.name);
    if (record.role == Role::kInput) inputs.emplace(record.key.name, record.where);
  }
  // A call with one tensor in a tuple has no X.1: then its inputs tell, X or X.parameter, from the same code.
  const auto is_called_itself = [&](const std::string& owner, const std::string& where) {
    if (where.empty() || inputs.contains(owner + ".0")) return false;
    if (const auto own = inputs.find(owner); own != inputs.end()) return own->second == where;
    for (auto it = inputs.lower_bound(owner + "."); it != inputs.end() && it->first.starts_with(owner + "."); ++it)
      if (parent_of(it->first) == owner && it->second == where) return true;
    return false;
  };
  for (size_t i = 0; i < run.records.size(); ++i) {
    const RecordedTensor& first = run.records[i];
    if (first.role != Role::kOutput || leaf_of(first.key.name) != "0") continue;
    const std::string owner = parent_of(first.key.name);
    if (owner.empty() || plain.contains(owner)) continue;
    bool members_have_children = false;
    for (auto it = plain.lower_bound(owner + ".0."); it != plain.end() && it->starts_with(owner + ".0."); ++it)
      members_have_children = true;
    const RecordedTensor* second = i + 1 < run.records.size() ? &run.records[i + 1] : nullptr;
    const bool pair = second && second->role == Role::kOutput && second->key.name == owner + ".1" &&
                      second->where == first.where && second->key.step == first.key.step;
    const bool is_tuple = (pair && !members_have_children) || is_called_itself(owner, first.where);
    (is_tuple ? owners : refused).insert(owner);
  }
  for (const std::string& owner : refused) owners.erase(owner);
  return owners;
}

}  // namespace

bool same_call(const RunView& run, size_t a, size_t b) {
  return run.records[a].key.step == run.records[b].key.step && run.records[a].key.tags == run.records[b].key.tags;
}

std::string parent_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

std::string leaf_of(const std::string& name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 is 0
}

bool is_inside(const std::string& name, const std::string& module) {
  return module.empty() || (name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.');
}

Structure::Structure(const RunView& run) : run_(run), sites_(run.records.size()) {
  const std::set<std::string> owners = tuple_owners(run);
  for (size_t i = 0; i < run.records.size(); ++i) {
    const RecordedTensor& record = run.records[i];
    if (record.role != Role::kOutput) continue;
    const std::string owner = parent_of(record.key.name);
    if (owners.contains(owner) && all_digits(leaf_of(record.key.name)))
      sites_[i] = {owner, leaf_of(record.key.name)};
    else
      sites_[i] = {record.key.name, ""};
    modules_.insert(sites_[i].module);
  }
  for (size_t i = 0; i < run.records.size(); ++i) {
    const RecordedTensor& record = run.records[i];
    if (record.role != Role::kInput) continue;
    std::string module = record.key.name;  // the longest known module that begins the name
    while (!module.empty() && !modules_.contains(module)) module = parent_of(module);
    if (module.empty()) module = record.key.name;
    sites_[i] = {module, record.key.name.size() > module.size() ? record.key.name.substr(module.size() + 1) : ""};
    modules_.insert(module);
  }
  for (size_t i = 0; i < sites_.size(); ++i) {
    if (sites_[i].module.empty()) continue;
    of_module_[sites_[i].module].push_back(i);
    for (std::string up = parent_of(sites_[i].module); !up.empty(); up = parent_of(up)) containers_.insert(up);
  }
}

std::string Structure::caller_of(const std::string& module) const {
  std::string up = parent_of(module);
  while (!up.empty() && !is_module(up) && !parent_of(up).empty()) up = parent_of(up);
  return up.empty() ? "pipeline" : up;
}

std::vector<size_t> Structure::records_of(const std::string& module, Role role, size_t near) const {
  std::vector<size_t> out;
  const auto found = of_module_.find(module);
  if (found == of_module_.end()) return out;
  std::map<std::string, size_t> best;  // slot → the record nearest to `near`
  const auto distance = [&](size_t i) { return i > near ? i - near : near - i; };
  for (const size_t i : found->second) {
    if (run_.records[i].role != role || !same_call(run_, i, near)) continue;
    const auto [it, is_new] = best.try_emplace(sites_[i].slot, i);
    if (!is_new && distance(i) < distance(it->second)) it->second = i;
  }
  for (const auto& [slot, i] : best) out.push_back(i);
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<size_t> Structure::records_inside(const std::string& module, size_t before) const {
  std::vector<size_t> out;
  for (size_t i = before; i-- > 0;) {
    if (!same_call(run_, i, before)) {
      if (!module.empty()) break;
      continue;
    }
    if (!sites_[i].module.empty() && is_inside(sites_[i].module, module)) out.push_back(i);
    // The previous call of it. Several outputs of one call stand side by side, and nothing ran between them.
    const bool beside = out.empty() && sites_[before].module == module && sites_[i].slot != sites_[before].slot;
    if (sites_[i].module == module && run_.records[i].role == Role::kOutput && !beside) break;
  }
  return out;
}

bool is_same_tensor(const RunView& run, size_t a, size_t b) {
  const RecordedTensor &x = run.records[a], &y = run.records[b];
  return a == b || (!x.checksum.empty() && x.checksum == y.checksum && x.dtype == y.dtype);
}

namespace {

// Earlier records with the same values, the latest first, for as long as `visit` says.
template <typename Visit>
void visit_same_values(const RunView& run, size_t record, Visit visit) {
  constexpr size_t kNearRecords = 64;  // looked through: a value is handed on at once
  if (run.records[record].checksum.empty()) return;
  for (size_t i = record, seen = 0; i-- > 0 && seen < kNearRecords; ++seen)
    if (run.records[i].checksum == run.records[record].checksum &&
        (same_call(run, i, record) || run.records[i].role == Role::kCheckpoint))  // a stage of the step before
      if (!visit(i)) return;
}

}  // namespace

size_t first_with_these_values(const RunView& run, size_t record) {
  size_t out = record;
  visit_same_values(run, record, [&](size_t i) {
    out = i;
    return true;
  });
  return out;
}

size_t last_with_these_values(const RunView& run, size_t record) {
  size_t out = record;
  visit_same_values(run, record, [&](size_t i) {
    out = i;
    return false;
  });
  return out;
}

}  // namespace lockstep
