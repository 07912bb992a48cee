#include "compare/map_proposal.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/names.h"
#include "compare/likeness.h"
#include "compare/node_matching.h"
#include "compare/pairing_graph.h"
#include "compare/weight_sketch.h"

namespace lockstep {
namespace {

constexpr double kMostlyShared = 0.8;
constexpr double kSlotAlike = 0.05;  // of a tensor that is recognised among those of its call

// The records that a map leaves: their names are neither mapped nor mapped to.
std::vector<size_t> open_records(const RunView& run, const std::set<std::string>& taken, const std::string& only_glob) {
  std::vector<size_t> out;
  for (size_t i = 0; i < run.records.size(); ++i) {
    const std::string& name = run.records[i].key.name;
    if (!taken.contains(name) && (only_glob.empty() || glob_match(only_glob, name))) out.push_back(i);
  }
  return out;
}

struct SlotPair {
  size_t reference = 0, candidate = 0;  // slots
};

// Tensors of one call: by content, then by name, then the only ones of their size.
std::vector<SlotPair> pair_slots(const RunView& reference, const PairingNode& r, const RunView& candidate,
                                 const PairingNode& c, LikenessOracle& likeness) {
  std::vector<SlotPair> out;
  std::set<size_t> used_r, used_c;
  const auto take = [&](size_t i, size_t j) {
    out.push_back({i, j});
    used_r.insert(i), used_c.insert(j);
  };
  const auto each_open = [&](auto&& use) {
    for (size_t i = 0; i < r.slots.size(); ++i)
      for (size_t j = 0; j < c.slots.size(); ++j)
        if (!used_r.contains(i) && !used_c.contains(j)) use(i, j);
  };
  const auto fits = [&](size_t i, size_t j) {
    return same_element_count(reference.records[r.slots[i].records[0]], candidate.records[c.slots[j].records[0]]);
  };
  std::vector<std::tuple<double, size_t, size_t>> alike;
  each_open([&](size_t i, size_t j) {
    double least = 2;
    for (size_t k = 0; k < std::min<size_t>(c.slots[j].records.size(), 4); ++k)
      least = std::min(least, likeness.of(r.slots[i].records[0], c.slots[j].records[k]).error);
    if (least < kSlotAlike) alike.emplace_back(least + (r.slots[i].name == c.slots[j].name ? -1e-3 : 0), i, j);
  });
  std::sort(alike.begin(), alike.end());
  for (const auto& [error, i, j] : alike)
    if (!used_r.contains(i) && !used_c.contains(j)) take(i, j);
  each_open([&](size_t i, size_t j) {
    const RecordedTensor &of = reference.records[r.slots[i].records[0]],
                         &own = candidate.records[c.slots[j].records[0]];
    if (r.slots[i].name == c.slots[j].name && shapes_may_agree(of, own)) take(i, j);
  });
  const auto rivals = [&](size_t i, size_t j) {
    size_t count = 0;
    each_open([&](size_t a, size_t b) { count += (a == i || b == j) && fits(a, b); });
    return count;
  };
  each_open([&](size_t i, size_t j) {
    if (fits(i, j) && rivals(i, j) == 1) take(i, j);
  });
  return out;
}

struct Numbered {
  std::string pattern;
  std::vector<std::string> numbers;
};

// Every run of digits is a star; those that do not vary are put back.
Numbered numbered(const std::string& name) {
  Numbered out;
  for (size_t i = 0; i < name.size();) {
    size_t end = i;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    if (end == i) {
      out.pattern += name[i++];
      continue;
    }
    out.pattern += '#';
    out.numbers.push_back(name.substr(i, end - i));
    i = end;
  }
  return out;
}

std::string filled(const Numbered& name, const std::vector<bool>& varies) {
  std::string out;
  size_t k = 0;
  for (const char c : name.pattern) {
    if (c != '#') {
      out += c;
      continue;
    }
    out += varies[k] ? "#" : name.numbers[k];
    ++k;
  }
  return out;
}

std::vector<bool> varying_numbers(const std::vector<Numbered>& names) {
  std::vector<bool> out(names[0].numbers.size());
  for (const Numbered& each : names)
    for (size_t k = 0; k < out.size(); ++k) out[k] = out[k] || each.numbers[k] != names[0].numbers[k];
  return out;
}

std::vector<std::string> of_varying(const Numbered& name, const std::vector<bool>& varies) {
  std::vector<std::string> out;
  for (size_t k = 0; k < varies.size(); ++k)
    if (varies[k]) out.push_back(name.numbers[k]);
  return out;
}

// Blocks that repeat make one rule, where every one of them agrees and none is left out.
std::vector<ProposedRule> blocks_as_one(const std::vector<ProposedRule>& single, const RunView& candidate) {
  using Key = std::pair<std::string, bool>;
  std::map<Key, std::set<std::string>> names_of;  // candidate's patterns → all its names
  for (const RecordedTensor& record : candidate.records)
    names_of[{numbered(record.key.name).pattern, record.role == Role::kInput}].insert(record.key.name);
  std::map<Key, std::vector<size_t>> groups;
  for (size_t i = 0; i < single.size(); ++i)
    groups[{numbered(single[i].rule.candidate).pattern, single[i].rule.input.value_or(false)}].push_back(i);
  std::vector<ProposedRule> out;
  for (size_t i = 0; i < single.size(); ++i) {
    const Key key{numbered(single[i].rule.candidate).pattern, single[i].rule.input.value_or(false)};
    // The members that go to the same pattern of the reference by the same layout.
    std::vector<size_t> members;
    const std::string target = numbered(single[i].rule.reference).pattern;
    for (const size_t m : groups[key])
      if (numbered(single[m].rule.reference).pattern == target && single[m].rule.permute == single[i].rule.permute)
        members.push_back(m);
    std::vector<Numbered> own, theirs;
    for (const size_t m : members)
      own.push_back(numbered(single[m].rule.candidate)), theirs.push_back(numbered(single[m].rule.reference));
    const std::vector<bool> varies_c = varying_numbers(own), varies_r = varying_numbers(theirs);
    bool general = members.size() > 1;
    for (size_t m = 0; m < members.size() && general; ++m)
      general = of_varying(own[m], varies_c) == of_varying(theirs[m], varies_r);
    if (general) {  // the rule must not speak of names that it was not made for
      MapRule rule{filled(own[0], varies_c), filled(theirs[0], varies_r), {}, {}, {}, {}, {}};
      std::set<std::string> meant;
      for (const size_t m : members) meant.insert(single[m].rule.candidate);
      for (const std::string& name : names_of[key])
        general = general && (meant.contains(name) || !mapped_name(rule, name));
    }
    if (!general) {
      out.push_back(single[i]);
    } else if (members[0] == i) {
      ProposedRule& rule = out.emplace_back(single[i]);
      rule.rule.candidate = filled(own[0], varies_c), rule.rule.reference = filled(theirs[0], varies_r);
      rule.tensors = members.size();
      for (const size_t m : members)
        if (single[m].why != rule.why) rule.why = "equal content or like blocks that have it";
    }
  }
  return out;
}

}  // namespace

bool names_agree(const RunView& reference, const RunView& candidate) {
  std::set<std::string> theirs, own;
  for (const RecordedTensor& record : reference.records) theirs.insert(record.key.name);
  for (const RecordedTensor& record : candidate.records) own.insert(record.key.name);
  const auto shared =
      std::count_if(own.begin(), own.end(), [&](const std::string& name) { return theirs.contains(name); });
  // Of the fewer names: where all of the reference's are there, a stage that ran in yours alone has no partner to find.
  const size_t fewer = std::min(own.size(), theirs.size());
  return own.empty() || static_cast<double>(shared) >= kMostlyShared * static_cast<double>(fewer);
}

FoundMap find_map(const RunView& reference, const RunView& candidate, const std::vector<MapRule>& map,
                  const std::string& only_glob, const WeightSource* weights_reference,
                  const WeightSource* weights_candidate) {
  std::set<std::string> mapped, targets;
  for (const RecordedTensor& record : candidate.records)
    for (const MapRule& rule : map)
      if (const auto target = mapped_name(rule, record.key.name)) {
        mapped.insert(record.key.name), targets.insert(*target);
        break;
      }
  const bool by_hand = std::none_of(candidate.records.begin(), candidate.records.end(),
                                    [](const RecordedTensor& record) { return record.role == Role::kOutput; });
  const PairingGraph r = pairing_graph(reference, open_records(reference, targets, only_glob), by_hand),
                     c = pairing_graph(candidate, open_records(candidate, mapped, ""), by_hand);
  ModuleWeights of_r = recorded_weights(reference), of_c = recorded_weights(candidate);
  if (of_c.empty() && weights_candidate) of_c = checkpoint_weights(candidate, *weights_candidate);
  if (of_r.empty() && weights_reference && !of_c.empty()) of_r = checkpoint_weights(reference, *weights_reference);
  LikenessOracle likeness(reference, candidate);
  const NodeMatching matching = match_nodes(reference, r, candidate, c, of_r, of_c, likeness);
  std::vector<ProposedRule> single;
  for (const NodePair& pair : matching.pairs) {
    const PairingNode &a = r.nodes[pair.reference], &b = c.nodes[pair.candidate];
    for (const SlotPair& slots : pair_slots(reference, a, candidate, b, likeness)) {
      const PairingSlot &of = a.slots[slots.reference], &own = b.slots[slots.candidate];
      MapRule rule{own.record_name, of.record_name, {}, {}, {}, {}, a.input};
      for (size_t k = 0; k < std::min<size_t>(own.records.size(), 4) && rule.permute.empty(); ++k)
        if (const auto order = likeness.axis_order(of.records[0], own.records[k])) rule.permute = *order;
      if (own.record_name != of.record_name || a.input != b.input || !rule.permute.empty())
        single.push_back({std::move(rule), pair.why, 1});
    }
  }
  FoundMap out;
  out.rules = blocks_as_one(single, candidate);
  for (const UnsureNode& node : matching.unsure) {
    std::string among;
    for (const size_t n : node.among) among += (among.empty() ? "" : " or ") + r.nodes[n].name;
    out.unsure.push_back(fmt::format("{}{} may be {}", c.nodes[node.candidate].input ? "the input of " : "",
                                     c.nodes[node.candidate].name, among));
  }
  return out;
}

std::vector<ProposedRule> propose_map(const RunView& reference, const RunView& candidate,
                                      const std::vector<MapRule>& map, const std::string& only_glob) {
  return find_map(reference, candidate, map, only_glob, nullptr, nullptr).rules;
}

Json json_from(const std::vector<ProposedRule>& proposal) {
  Json rules = Json::array();
  for (const ProposedRule& each : proposal) {
    Json rule{{"candidate", each.rule.candidate}, {"reference", each.rule.reference}};
    if (each.rule.input) rule["role"] = *each.rule.input ? "input" : "output";
    if (!each.rule.permute.empty()) rule["permute"] = each.rule.permute;
    rule["why"] = each.why;
    rule["names"] = each.tensors;
    rules.push_back(std::move(rule));
  }
  return Json{{"rules", std::move(rules)}};
}

}  // namespace lockstep
