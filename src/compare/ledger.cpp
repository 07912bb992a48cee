#include "compare/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "compare/structure.h"

namespace lockstep {
namespace {

constexpr double kAmplifies = 2, kHeals = 0.5;

std::map<size_t, size_t> partners(const RunView& reference, const RunView& run) {
  std::map<size_t, size_t> out;
  for (const Pair& pair : pair_runs(reference, run, {}, "").pairs) out[pair.reference] = pair.candidate;
  return out;
}

double distance(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() ? pair_error(a, b).relative : INFINITY;
}

std::string word_for(const LedgerEntry& entry) {
  if (entry.local > entry.floor) return "source";
  if (entry.total <= entry.floor) return "clean";
  if (entry.gain > kAmplifies) return "amplifier";
  return entry.gain > 0 && entry.gain < kHeals ? "healer" : "carrier";
}

}  // namespace

Ledger make_ledger(const RunView& reference, const RunView& as_it_is, const RunView& substituted) {
  Ledger out;
  const Structure structure(reference);
  const RunPrecision precision_r(reference), precision_c(as_it_is);
  const auto plain = partners(reference, as_it_is), clean = partners(reference, substituted);
  std::map<size_t, double> total_of;
  double before = 0;  // the stage before, where no inputs were recorded
  for (size_t i = 0; i < reference.records.size(); ++i) {
    const RecordedTensor& r = reference.records[i];
    const auto p = plain.find(i), s = clean.find(i);
    if (p == plain.end() || s == clean.end() || !r.load || !is_floating(r.dtype)) continue;
    const RecordedTensor &a = as_it_is.records[p->second], &b = substituted.records[s->second];
    if (!a.load || !b.load) continue;
    LedgerEntry entry{r.key, r.role, 0, 0, 0, 0, 0, ""};
    const Tensor expected = r.load(), own = a.load(), local = b.load();
    entry.total = distance(own, expected), entry.local = distance(local, expected);
    if (own.shape() == local.shape() && own.shape() == expected.shape()) {
      const PairError apart = pair_error(own, local), scale = pair_error(local, expected);
      entry.inherited = scale.rms_reference > 0 ? apart.relative * apart.rms_reference / scale.rms_reference : 0;
    }
    const int64_t longest = r.shape.empty() ? 1 : *std::max_element(r.shape.begin(), r.shape.end());
    entry.floor = kFloorFactor *
                  rounding_floor(std::max(precision_r.unit(r.key.name), precision_c.unit(r.key.name)), 4 * longest);
    double input = 0;
    bool has_inputs = false;
    if (r.role == Role::kOutput)
      for (const size_t k : structure.records_of(structure.site(i).module, Role::kInput, i))
        if (const auto found = total_of.find(k); found != total_of.end())
          input = std::max(input, found->second), has_inputs = true;
    if (!has_inputs) input = before;
    entry.gain = input > 0 ? entry.total / input : 0;
    entry.word = word_for(entry);
    if (entry.word == "source") out.sources.push_back(out.entries.size());
    total_of[i] = before = entry.total;
    out.entries.push_back(std::move(entry));
  }
  return out;
}

Json json_from(const Ledger& ledger) {
  Json entries = Json::array(), sources = Json::array();
  for (const LedgerEntry& entry : ledger.entries) {
    Json tags = Json::object();
    for (const auto& [name, value] : entry.key.tags) tags[name] = value;
    entries.push_back({{"name", entry.key.name},
                       {"step", entry.key.step < 0 ? Json() : Json(entry.key.step)},
                       {"hit", entry.key.hit},
                       {"tags", tags},
                       {"role", role_name(entry.role)},
                       {"total", json_number(entry.total)},
                       {"local", json_number(entry.local)},
                       {"inherited", json_number(entry.inherited)},
                       {"gain", json_number(entry.gain)},
                       {"word", entry.word}});
  }
  for (const size_t i : ledger.sources) sources.push_back(to_string(ledger.entries[i].key));
  return {{"entries", entries}, {"sources", sources}};
}

std::string text_from(const Ledger& ledger, bool all, bool color) {
  const auto paint = [&](const char* code, const std::string& text) {
    return color ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
  };
  std::string out;
  if (ledger.sources.empty()) {
    out = paint("1;32", "NO SOURCE") +
          fmt::format(": none of {} stages makes an error of its own beyond rounding\n\n", ledger.entries.size());
  } else {
    // A mistake shows in every step and pass: one line a name.
    std::map<std::string, size_t> counts;
    std::vector<std::string> order;
    for (const size_t i : ledger.sources)
      if (counts[ledger.entries[i].key.name]++ == 0) order.push_back(ledger.entries[i].key.name);
    out = paint("1;31", fmt::format("{} SOURCE{}", order.size(), order.size() == 1 ? "" : "S")) +
          fmt::format(" of error among {} stages\n", ledger.entries.size());
    for (const std::string& name : order) out += fmt::format("  {} ({} times)\n", name, counts[name]);
    out += "\n";
  }
  out += fmt::format("  {:>9} {:>9} {:>9} {:>7}  {:<10} stage\n", "total", "local", "inherited", "gain", "word");
  std::map<std::string, int> shown;
  for (const LedgerEntry& entry : ledger.entries) {
    if (!all && (entry.word == "clean" || entry.word == "carrier")) continue;
    if (!all && ++shown[entry.key.name + entry.word] > 1) continue;  // the first of each; --all shows the rest
    out += fmt::format("  {:>9.2e} {:>9.2e} {:>9.2e} {:>7.3g}  {} {}{}\n", entry.total, entry.local, entry.inherited,
                       entry.gain, paint(entry.word == "source" ? "31" : "0", fmt::format("{:<10}", entry.word)),
                       entry.role == Role::kInput ? "-> " : "", to_string(entry.key));
  }
  return out;
}

}  // namespace lockstep
