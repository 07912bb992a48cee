#include "compare/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>

#include "compare/alignment.h"
#include "diagnose/case/structure.h"

namespace lockstep {
namespace {

constexpr double kAmplifies = 2, kHeals = 0.5;
constexpr double kSameError = 0.05;      // between two errors that are one
constexpr size_t kMostErrors = 8;        // of sources that are remembered
constexpr int64_t kMostKept = 16 << 20;  // elements of each

std::map<size_t, Pair> partners(const RunView& reference, const RunView& run, const std::vector<MapRule>& map) {
  std::map<size_t, Pair> out;
  for (const Pair& pair : pair_runs(reference, run, map, "").pairs) out[pair.reference] = pair;
  return out;
}

std::string word_for(const LedgerEntry& entry) {
  if (entry.local > entry.floor) return "source";  // NaN is not
  if (entry.total <= entry.floor) return "clean";
  if (entry.gain > kAmplifies) return "amplifier";
  return entry.gain > 0 && entry.gain < kHeals ? "healer" : "carrier";
}

double gain_of(double total, double input) {
  if (std::isinf(input)) return std::isinf(total) ? 1 : 0;
  return input > 0 ? total / input : 0;
}

// Walks along the reference; the two runs of the candidate go beside it.
class LedgerWalk {
 public:
  LedgerWalk(const RunView& reference, const RunView& as_it_is, const RunView& substituted,
             const std::vector<MapRule>& map)
      : map_(map),
        reference_(reference),
        as_it_is_(as_it_is),
        substituted_(substituted),
        structure_(reference),
        precision_r_(reference),
        precision_c_(as_it_is) {}

  Ledger walk() {
    const auto plain = partners(reference_, as_it_is_, map_), clean = partners(reference_, substituted_, map_);
    std::set<std::string> missing;
    for (size_t i = 0; i < reference_.records.size(); ++i) {
      const RecordedTensor& r = reference_.records[i];
      const auto p = plain.find(i), s = clean.find(i);
      const bool found = p != plain.end() && s != clean.end();
      // The inputs of modules are asked for with --inputs alone.
      if (!found && r.role != Role::kInput && missing.insert(r.key.name).second) out_.missing.push_back(r.key.name);
      if (!found || !r.load || !is_floating(r.dtype)) continue;
      const RecordedTensor &own = as_it_is_.records[p->second.candidate],
                           &local = substituted_.records[s->second.candidate];
      if (own.load && local.load) visit(i, r, own, local, p->second.rule);
    }
    finish();
    return std::move(out_);
  }

 private:
  struct Seen {
    double total = 0;
    bool dirty = false;  // went on with a wrong value, although it was to be replaced
  };

  Tensor in_references_form(const RecordedTensor& record, int rule) const {
    return rule < 0 ? record.load() : apply_rule(map_[static_cast<size_t>(rule)], record.load());
  }

  void visit(size_t i, const RecordedTensor& r, const RecordedTensor& a, const RecordedTensor& b, int rule) {
    LedgerEntry entry{r.key, r.role, 0, 0, 0, 0, 0, ""};
    const int64_t longest = r.shape.empty() ? 1 : *std::max_element(r.shape.begin(), r.shape.end());
    entry.floor = kFloorFactor *
                  rounding_floor(std::max(precision_r_.unit(r.key.name), precision_c_.unit(r.key.name)), 4 * longest);
    const Tensor expected = r.load();
    const Alignment own = align(r.key.name, in_references_form(a, rule), expected, entry.floor),
                    local = align(r.key.name, in_references_form(b, rule), expected, entry.floor);
    entry.total = own.comparable ? pair_error(own.candidate, expected).relative : INFINITY;
    entry.local = local.comparable ? pair_error(local.candidate, expected).relative : INFINITY;
    bool reacted = own.comparable != local.comparable;
    if (own.comparable && local.comparable) {
      const PairError apart = pair_error(own.candidate, local.candidate), scale = pair_error(local.candidate, expected);
      entry.inherited = scale.rms_reference > 0 ? apart.relative * apart.rms_reference / scale.rms_reference : 0;
      reacted = apart.max_abs > 0 || !std::isfinite(apart.relative);
    }
    Seen given = before_;
    bool has_inputs = false;
    if (r.role == Role::kOutput)
      for (const size_t k : structure_.records_of(structure_.site(i).module, Role::kInput, i))
        if (const auto found = seen_.find(k); found != seen_.end()) {
          if (!has_inputs) given = {};
          has_inputs = true;
          given.total = std::max(given.total, found->second.total);
          given.dirty = given.dirty || found->second.dirty;
        }
    // A parent's result is made of what ran inside too: a source in there is no gain of the parent's.
    if (r.role == Role::kOutput && structure_.is_container(structure_.site(i).module))
      for (const size_t k : structure_.records_inside(structure_.site(i).module, i))
        if (const auto found = seen_.find(k); found != seen_.end())
          given.total = std::max(given.total, found->second.total);
    entry.gain = gain_of(entry.total, given.total);
    if (!b.substituted && not_replaced_++ == 0) first_not_replaced_ = to_string(r.key);
    const bool wrong_here = entry.local > entry.floor;
    if (wrong_here && (given.dirty || is_seen_before(entry, local, expected))) entry.local = NAN;
    entry.word = word_for(entry);
    if (!out_.sources.empty() && entry.total > entry.floor) ++after_, reacted_ += reacted;
    if (entry.word == "source") {
      out_.sources.push_back(out_.entries.size());
      keep_error(entry, local, expected);
    }
    seen_[i] = before_ = {entry.total, wrong_here && !b.substituted};
    out_.entries.push_back(std::move(entry));
  }

  // A tensor that goes past the one that was replaced, such as a residual, brings the same error again.
  bool is_seen_before(const LedgerEntry& entry, const Alignment& local, const Tensor& expected) const {
    if (!local.comparable || !std::isfinite(entry.local)) return false;
    for (const auto& [key, earlier] : errors_) {
      if (key.step != entry.key.step || key.hit != entry.key.hit || key.tags != entry.key.tags ||
          earlier.size() != expected.numel())
        continue;
      const Values error = error_of(local.candidate, expected);
      if (relative_error(error.v, earlier.v) < kSameError) return true;
    }
    return false;
  }
  void keep_error(const LedgerEntry& entry, const Alignment& local, const Tensor& expected) {
    if (!local.comparable || !std::isfinite(entry.local) || expected.numel() > kMostKept) return;
    errors_.emplace_back(entry.key, error_of(local.candidate, expected));
    if (errors_.size() > kMostErrors) errors_.pop_front();
  }
  static Values error_of(const Tensor& candidate, const Tensor& expected) {
    Values out = values_from(candidate);
    const Values r = values_from(expected);
    for (size_t i = 0; i < out.v.size(); ++i) out.v[i] -= r.v[i];
    return out;
  }

  void finish() {
    // Nothing that came later was another in the second run: the values were handed back and not taken.
    if (after_ > 0 && reacted_ == 0 && not_replaced_ == 0) {
      while (out_.sources.size() > 1) {
        LedgerEntry& entry = out_.entries[out_.sources.back()];
        entry.local = NAN, entry.word = word_for(entry);
        out_.sources.pop_back();
      }
      out_.notes.push_back(
          "replacing changed nothing that came later, so only the first source is known: go on with what checkpoint "
          "returns, x = checkpoint(name, x)");
    }
    if (not_replaced_ > 0)
      out_.notes.push_back(
          fmt::format("{} tensor{} not replaced by the reference's value (other shape, step, hit or pass), the first "
                      "is {}: what was "
                      "made from {} cannot be judged",
                      not_replaced_, not_replaced_ == 1 ? " was" : "s were", first_not_replaced_,
                      not_replaced_ == 1 ? "it" : "them"));
    if (!out_.missing.empty())
      out_.notes.push_back(fmt::format("{} name{} of the reference {} not recorded by your program, the first is {}",
                                       out_.missing.size(), out_.missing.size() == 1 ? "" : "s",
                                       out_.missing.size() == 1 ? "was" : "were", out_.missing[0]));
  }

  const std::vector<MapRule>& map_;
  const RunView &reference_, &as_it_is_, &substituted_;
  const Structure structure_;
  const RunPrecision precision_r_, precision_c_;
  Ledger out_;
  std::map<size_t, Seen> seen_;
  Seen before_;                                      // the stage before, where no inputs were recorded
  std::deque<std::pair<TensorKey, Values>> errors_;  // of sources
  size_t not_replaced_ = 0, after_ = 0, reacted_ = 0;
  std::string first_not_replaced_;
};

}  // namespace

Ledger make_ledger(const RunView& reference, const RunView& as_it_is, const RunView& substituted,
                   const std::vector<MapRule>& map) {
  return LedgerWalk(reference, as_it_is, substituted, map).walk();
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
  return {{"entries", entries}, {"sources", sources}, {"missing", ledger.missing}, {"notes", ledger.notes}};
}

Text text_from(const Ledger& ledger, bool all, bool color) {
  const auto paint = [&](const char* code, const Text& text) {
    return color ? Text::trusted("\033[" + std::string(code) + "m" + text.string() + "\033[0m") : text;
  };
  Text out;
  if (ledger.sources.empty()) {
    out = paint("1;32", "NO SOURCE") +
          Text::of(": none of {} stages makes an error of its own beyond rounding\n\n", ledger.entries.size());
  } else {
    // A mistake shows in every step and pass: one line a name.
    std::map<std::string, size_t> counts;
    std::vector<std::string> order;
    for (const size_t i : ledger.sources)
      if (counts[ledger.entries[i].key.name]++ == 0) order.push_back(ledger.entries[i].key.name);
    out = paint("1;31", Text::of("{} SOURCE{}", order.size(), order.size() == 1 ? "" : "S")) +
          Text::of(" of error among {} stages\n", ledger.entries.size());
    for (const std::string& name : order)
      out += counts[name] == 1 ? Text::of("  {}\n", name) : Text::of("  {} ({} times)\n", name, counts[name]);
    out += "\n";
  }
  Text rows;
  std::map<std::string, int> shown;
  for (const LedgerEntry& entry : ledger.entries) {
    if (!all && (entry.word == "clean" || entry.word == "carrier")) continue;
    if (!all && ++shown[entry.key.name + entry.word] > 1) continue;  // the first of each; --all shows the rest
    rows += Text::of("  {:>9.2e} {:>9} {:>9.2e} {:>7.3g}  {} {}{}\n", entry.total,
                     std::isnan(entry.local) ? Text("-") : Text::of("{:.2e}", entry.local), entry.inherited, entry.gain,
                     paint(entry.word == "source" ? "31" : "0", Text::of("{:<10}", entry.word)),
                     entry.role == Role::kInput ? "-> " : "", to_string(entry.key));
  }
  if (!rows.empty())
    out += Text::of("  {:>9} {:>9} {:>9} {:>7}  {:<10} stage\n", "total", "local", "inherited", "gain", "word") + rows;
  for (const std::string& note : ledger.notes) out += Text::of("  note: {}\n", note);
  return out;
}

}  // namespace lockstep
