#include "compare/pairing_graph.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "diagnose/case/structure.h"

namespace lockstep {
namespace {

constexpr size_t kMostNodes = 12000;  // on each side
constexpr size_t kMostDigits = 9;

std::vector<std::string> segments_of(const std::string& name) {
  std::vector<std::string> out(1);
  for (const char c : name) {
    if (c == '.' || c == '/')
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

bool same_results(const RunView& run, const Structure& structure, size_t a, size_t b) {
  return run.records[a].role == Role::kOutput && same_call(run, a, b) &&
         structure.site(a).module == structure.site(b).module;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// "blocks.7.attn" → "blocks.#.attn" and {7}. A number behind a word (layer7, block_7) counts too; which of them are
// indices is seen where names are compared.
void generalise(const std::string& name, std::string& pattern, std::vector<int64_t>& numbers) {
  for (size_t i = 0; i < name.size();) {
    size_t end = i;
    while (end < name.size() && is_digit(name[end])) ++end;
    const bool inside_a_word = end < name.size() && std::isalpha(static_cast<unsigned char>(name[end]));  // Model2D
    if (end == i || end - i > kMostDigits || inside_a_word) {
      pattern.append(name, i, std::max<size_t>(end - i, 1));
      i = std::max(end, i + 1);
      continue;
    }
    pattern += '#';
    numbers.push_back(std::stoll(name.substr(i, end - i)));
    i = end;
  }
}

}  // namespace

PairingGraph pairing_graph(const RunView& run, const std::vector<size_t>& records, bool apart) {
  const Structure structure(run);
  // A module without recorded outputs (a pipeline's root) is known by its parameters alone, each of which Structure
  // takes for a module: they are one call's where they share what stands before the last dot.
  std::map<std::string, size_t> inputs_below;
  for (const size_t i : records)
    if (run.records[i].role == Role::kInput && structure.site(i).slot.empty())
      ++inputs_below[parent_of(run.records[i].key.name)];
  std::set<std::string> is_given, gives;  // modules with recorded inputs, and with outputs under their own name
  for (const size_t i : records) {
    const Site& site = structure.site(i);
    if (run.records[i].role == Role::kInput) is_given.insert(site.slot.empty() ? run.records[i].key.name : site.module);
    if (run.records[i].role == Role::kOutput) gives.insert(site.module);
  }
  // What is given to a module that is known by its parameters alone.
  const auto is_a_parameter = [&](const std::string& module) {
    const std::string above = parent_of(module);
    // A module of its own that gives something is no parameter.
    return !gives.contains(module) && !above.empty() && inputs_below[above] > 1;
  };
  for (const size_t i : records)
    if (const Site& site = structure.site(i); run.records[i].role == Role::kInput && site.slot.empty() &&
                                              !structure.is_container(site.module) && is_a_parameter(site.module))
      is_given.insert(parent_of(site.module));
  PairingGraph graph;
  std::map<std::pair<std::string, bool>, size_t> of_name;
  for (const size_t i : records) {
    const RecordedTensor& record = run.records[i];
    const Site& site = structure.site(i);
    std::string module = site.module.empty() ? record.key.name : site.module, slot = site.slot;
    const bool input = record.role == Role::kInput;
    if (input && slot.empty() && !structure.is_container(module) && module == record.key.name && is_a_parameter(module))
      slot = leaf_of(module), module = parent_of(module);
    if (apart && !input) module = record.key.name, slot.clear();
    // One of several named results of a call (a dataclass) has no inputs of its own where its call has some.
    if (!apart && record.role == Role::kOutput && slot.empty() && !structure.is_container(module)) {
      const std::string above = parent_of(module);
      if (!above.empty() && is_given.contains(above) && !is_given.contains(module) && !gives.contains(above))
        slot = leaf_of(module), module = above;
    }
    const auto [found, is_new] = of_name.try_emplace({module, input}, graph.nodes.size());
    if (is_new) {
      if (graph.nodes.size() >= kMostNodes) {
        of_name.erase(found);
        continue;
      }
      PairingNode node;
      node.name = module, node.input = input, node.first = node.made = i;
      while (record.role == Role::kOutput && node.made > 0 && same_results(run, structure, node.made - 1, i))
        --node.made;
      node.by_hand = record.role == Role::kCheckpoint || record.role == Role::kVariable;
      node.segments = segments_of(module);
      generalise(module, node.pattern, node.numbers);
      graph.nodes.push_back(std::move(node));
    }
    PairingNode& node = graph.nodes[found->second];
    auto at = std::find_if(node.slots.begin(), node.slots.end(), [&](const PairingSlot& s) { return s.name == slot; });
    if (at == node.slots.end()) at = node.slots.insert(at, PairingSlot{slot, record.key.name, {}});
    at->records.push_back(i);
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    PairingNode& node = graph.nodes[n];
    if (const auto twin = of_name.find({node.name, !node.input}); twin != of_name.end()) node.twin = twin->second;
    for (std::string up = parent_of(node.name); !up.empty(); up = parent_of(up)) {
      auto above = of_name.find({up, node.input});
      if (above == of_name.end()) above = of_name.find({up, !node.input});
      if (above == of_name.end()) continue;
      node.parent = above->second;
      graph.nodes[above->second].children.push_back(n);
      break;
    }
  }
  return graph;
}

}  // namespace lockstep
