#include "compare/ranked_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <list>

#include "base/error.h"

namespace lockstep {
namespace {

using LogicalKey = std::tuple<std::string, Role, int, int, Tags>;

// Takes the rank out of the tags; -1: none.
int take_rank(Tags& tags) {
  for (auto tag = tags.begin(); tag != tags.end(); ++tag)
    if (tag->first == "rank") {
      const int rank = std::atoi(tag->second.c_str());
      tags.erase(tag);
      return rank;
    }
  return -1;
}

// In the order of the first rank; what only a later one has comes behind what it has before.
std::vector<Logical> logical_tensors(const RunView& run) {
  std::list<Logical> order;
  std::map<LogicalKey, std::list<Logical>::iterator> known;
  int rank_before = -1;
  std::optional<std::list<Logical>::iterator> before;
  for (size_t i = 0; i < run.records.size(); ++i) {
    const RecordedTensor& record = run.records[i];
    TensorKey key = record.key;
    const int rank = take_rank(key.tags);
    if (rank != rank_before) before.reset(), rank_before = rank;
    const LogicalKey at{key.name, record.role, key.step, key.hit, key.tags};
    auto found = known.find(at);
    if (found == known.end()) {
      const auto place = before ? std::next(*before) : order.end();
      found = known.emplace(at, order.insert(place, Logical{key, record.role, {}, {}})).first;
    }
    found->second->records.push_back(i);
    found->second->ranks.push_back(rank);
    before = found->second;
  }
  return {order.begin(), order.end()};
}

std::string name_for_the_other(const std::string& name, const std::vector<MapRule>* map) {
  if (map)
    for (const MapRule& rule : *map)
      if (auto mapped = mapped_name(rule, name)) return *mapped;
  return name;
}

}  // namespace

std::string with_numbers_open(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit)
      out += c;
    else if (out.empty() || out.back() != '#')
      out += '#';
  }
  return out;
}

RankedSide::RankedSide(RunView& run, const std::vector<MapRule>* map, const Rules& rules)
    : all(logical_tensors(run)), run_(run), rules_(rules) {
  for (size_t i = 0; i < all.size(); ++i) {
    names.push_back(name_for_the_other(all[i].key.name, map));
    const bool input = all[i].role == Role::kInput;
    const TensorKey& key = all[i].key;
    by_call.try_emplace({names[i], input, key.step, key.hit, key.tags}, i);
    by_name[{names[i], input}].push_back(i);
  }
}

size_t RankedSide::partner_of(const RankedSide& other, size_t i) const {
  const Logical& logical = all[i];
  const bool input = logical.role == Role::kInput;
  const auto exact = other.by_call.find({names[i], input, logical.key.step, logical.key.hit, logical.key.tags});
  if (exact != other.by_call.end()) return exact->second;
  const auto own = by_name.at({names[i], input});
  const auto theirs = other.by_name.find({names[i], input});
  const size_t at = static_cast<size_t>(std::find(own.begin(), own.end(), i) - own.begin());
  return theirs == other.by_name.end() || at >= theirs->second.size() ? SIZE_MAX : theirs->second[at];
}

bool RankedSide::can_load(size_t i) const {
  return std::all_of(all[i].records.begin(), all[i].records.end(),
                     [&](size_t r) { return run_.records[r].load != nullptr; });
}

std::vector<Shape> RankedSide::shapes(size_t i) const {
  std::vector<Shape> out;
  for (const size_t r : all[i].records) out.push_back(run_.records[r].shape);
  return out;
}

std::vector<Tensor> RankedSide::load(size_t i) const {
  std::vector<Tensor> out;
  for (const size_t r : all[i].records) out.push_back(run_.records[r].load());
  return out;
}

bool RankedSide::is_identical(size_t i) const {
  const auto& first = run_.records[all[i].records[0]];
  return std::all_of(all[i].records.begin(), all[i].records.end(), [&](size_t r) {
    const RecordedTensor& one = run_.records[r];
    return !one.checksum.empty() && one.checksum == first.checksum && one.shape == first.shape &&
           one.dtype == first.dtype;
  });
}

std::vector<Assembly> RankedSide::ways(size_t i, bool nested) const {
  if (is_split(i)) return possible_assemblies(shapes(i), nested);
  return {{JoinStep{Join::kReplicate, 0, 1, 1}}};
}

std::optional<Assembly> RankedSide::told(size_t i) const {
  for (const auto& [name, text] : rules_) {
    if (!mapped_name(MapRule{name, "", {}, {}, {}, {}, {}}, label(i))) continue;
    Assembly way = assembly_from_text(text, all[i].records.size());
    if (!assembled_shape(way, shapes(i)))
      fail(Code::kBadInput, "map", fmt::format("{} cannot be put together as \"{}\"", label(i), text),
           {.expected = fmt::format("what fits {} shards of {}", all[i].records.size(), to_string(shapes(i)[0]))});
    return way;
  }
  return std::nullopt;
}

}  // namespace lockstep
