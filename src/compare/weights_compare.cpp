#include "compare/weights_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/interrupt.h"
#include "compare/weight_relation.h"

namespace lockstep {
namespace {

// Numbers that survive a transpose or any other rearrangement of the elements.
struct Fingerprint {
  int64_t count = 0;
  double sum = 0, squares = 0, cubes = 0;

  bool near(const Fingerprint& o) const {
    const auto close = [](double a, double b, double scale) { return std::fabs(a - b) <= 1e-4 * scale + 1e-12; };
    const double size = std::sqrt(squares * static_cast<double>(count));
    return count == o.count && close(squares, o.squares, squares) && close(sum, o.sum, size) &&
           close(cubes, o.cubes, std::pow(squares, 1.5));
  }
};

Fingerprint fingerprint(const Values& x) {
  Fingerprint out{x.size(), 0, 0, 0};
  for (const float value : x.v) {
    const double v = value;
    out.sum += v, out.squares += v * v, out.cubes += v * v * v;
  }
  return out;
}

using Prints = std::map<std::string, Fingerprint>;

Prints prints_of(const WeightSource& source) {
  Prints out;
  for (const auto& [name, shape] : source.shapes()) {
    check_interrupt("weights compare");
    if (const auto values = source.find(name)) out[name] = fingerprint(*values);
  }
  return out;
}

// Another tensor of `source` with this content, whatever its axes; names near to `name` first.
std::string find_content(const WeightSource& source, const Prints& prints, const std::string& name,
                         const Fingerprint& wanted, const Values& values, std::string& words) {
  if (values.size() < 2 || wanted.squares == 0) return "";
  for (const auto& [other, print] : prints) {
    if (other == name || !print.near(wanted)) continue;
    const auto candidate = source.find(other);
    if (!candidate) continue;
    const WeightRelation relation = relate_weights(other, values, *candidate);
    if (relation.id == "identical" || relation.error < 1e-3) {
      words = "";
      return other;
    }
    if (relation.id == "weights.transposed" || relation.id == "weights.parts_exchanged" ||
        relation.id == "weights.rearranged") {
      words = relation.words;
      return other;
    }
  }
  return "";
}

bool is_mild(const std::string& id) {
  return id == "weights.rounded_bf16" || id == "weights.rounded_f16" || id == "weights.rounded_f8" ||
         id == "weights.quantised" || id == "weights.small_error";
}

}  // namespace

bool WeightsComparison::match() const {
  return std::none_of(findings.begin(), findings.end(), [](const WeightFinding& f) { return f.serious; });
}

WeightsComparison compare_weights(const WeightSource& a, const WeightSource& b) {
  WeightsComparison out;
  const Prints prints_a = prints_of(a), prints_b = prints_of(b);
  std::set<std::string> used;
  std::string words;
  for (const auto& [name, print] : prints_a) {
    check_interrupt("weights compare");
    const auto mine = a.find(name);
    if (!prints_b.contains(name)) {
      const std::string other = find_content(b, prints_b, name, print, *mine, words);
      if (!other.empty()) used.insert(other);
      out.findings.push_back({other.empty() ? "missing" : "renamed", name, other,
                              other.empty()   ? "not in the other checkpoint under any name"
                              : words.empty() ? "the same values under another name"
                                              : words,
                              0, true});
      continue;
    }
    used.insert(name);
    ++out.compared;
    const auto theirs = b.find(name);
    const WeightRelation relation = relate_weights(name, *theirs, *mine);
    if (relation.id == "identical") {
      ++out.identical;
      continue;
    }
    WeightFinding finding{relation.id, name, "", relation.words, relation.error, !is_mild(relation.id)};
    if (finding.serious && relation.id != "weights.transposed" && relation.id != "weights.parts_exchanged") {
      // Is it another tensor of A that sits here?
      const std::string other = find_content(a, prints_a, name, prints_b.at(name), *theirs, words);
      if (!other.empty())
        finding.kind = "other_layer", finding.other = other, finding.words = "holds the values of " + other;
    }
    out.findings.push_back(std::move(finding));
  }
  for (const auto& [name, print] : prints_b)
    if (!used.contains(name)) out.findings.push_back({"unused", name, "", "in the second checkpoint only", 0, true});
  // Two names of B with one content, where A has two.
  for (auto i = prints_b.begin(); i != prints_b.end(); ++i)
    for (auto j = std::next(i); j != prints_b.end(); ++j) {
      const auto &p = i->second, &q = j->second;
      if (p.count < 16 || p.squares == 0 || p.count != q.count || p.sum != q.sum || p.squares != q.squares ||
          p.cubes != q.cubes)
        continue;
      const auto x = prints_a.find(i->first), y = prints_a.find(j->first);
      const bool same_in_a = x != prints_a.end() && y != prints_a.end() && x->second.squares == y->second.squares &&
                             x->second.sum == y->second.sum;
      if (!same_in_a)
        out.findings.push_back({"duplicated", j->first, i->first, "the same values as " + i->first, 0, true});
    }
  return out;
}

Json json_from(const WeightsComparison& comparison) {
  Json findings = Json::array();
  for (const WeightFinding& f : comparison.findings)
    findings.push_back({{"kind", f.kind},
                        {"name", f.name},
                        {"other", f.other},
                        {"words", f.words},
                        {"error", json_number(f.error)},
                        {"serious", f.serious}});
  return {{"verdict", comparison.match() ? "match" : "mismatch"},
          {"compared", comparison.compared},
          {"identical", comparison.identical},
          {"findings", findings}};
}

std::string text_from(const WeightsComparison& comparison, size_t most_rows) {
  std::map<std::string, size_t> counts;
  for (const WeightFinding& f : comparison.findings) ++counts[f.kind];
  std::string out = fmt::format("{}: {} tensors under one name, {} identical\n",
                                comparison.match() ? "MATCH" : "MISMATCH", comparison.compared, comparison.identical);
  for (const auto& [kind, count] : counts) out += fmt::format("  {:<24} {}\n", kind, count);
  size_t row = 0;
  for (const WeightFinding& f : comparison.findings) {
    if (most_rows && row++ >= most_rows) {
      out += fmt::format("  ... {} more: --limit 0 shows all\n", comparison.findings.size() - most_rows);
      break;
    }
    out += fmt::format("  {:<24} {}  {}\n", f.kind, f.name, f.words.empty() ? f.other : f.words);
  }
  return out;
}

}  // namespace lockstep
