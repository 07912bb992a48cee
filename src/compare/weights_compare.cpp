#include "compare/weights_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/interrupt.h"
#include "diagnose/weight/weight_parts.h"
#include "diagnose/weight/weight_relation.h"

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

size_t common_end(const std::string& a, const std::string& b) {
  const auto apart = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return static_cast<size_t>(apart.first - a.rbegin());
}

// Another tensor of `source` with this content, whatever its axes; of several the one whose name ends most alike.
std::string find_content(const WeightSource& source, const Prints& prints, const std::string& name,
                         const Fingerprint& wanted, const Values& values, const std::set<std::string>& taken,
                         std::string& words) {
  std::vector<std::string> near;
  for (const auto& [other, print] : prints)
    if (other != name && !taken.contains(other) && print.near(wanted)) near.push_back(other);
  std::stable_sort(near.begin(), near.end(), [&](const std::string& a, const std::string& b) {
    return common_end(a, name) > common_end(b, name);
  });
  for (const std::string& other : near) {
    const auto candidate = source.find(other);
    if (!candidate) continue;
    // Too little to know it by: zeros, and single numbers, are told by their shape and the end of their name.
    if (values.size() < 2 || wanted.squares == 0) {
      if (candidate->shape != values.shape || common_end(other, name) < std::string_view(".bias").size()) continue;
      words = "";
      return other;
    }
    const WeightRelation relation = relate_weights(other, values, *candidate);
    if (!relation.id || relation.error < 1e-3) {
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

// A weight that is in neither under its name may be rows of a larger one, or made of several.
void tell_parts(const WeightSource& a, const WeightSource& b, std::vector<std::string>& missing,
                std::vector<std::string>& unused, WeightsComparison& out) {
  std::set<std::string> told_a, told_b;
  for (const WeightPart& part : find_parts(a, missing, b, unused)) {
    if (!told_a.insert(part.small).second) continue;
    told_b.insert(part.large);
    out.findings.push_back({"part_of", part.small, part.large,
                            fmt::format("is rows {} to {} of {}", part.begin, part.end - 1, part.large), 0, true});
  }
  std::map<std::string, std::string> made_of;
  for (const WeightPart& part : find_parts(b, unused, a, missing)) {
    if (told_a.contains(part.large) || !told_b.insert(part.small).second) continue;
    std::string& words = made_of[part.large];
    words += fmt::format("{}rows {} to {} are {}", words.empty() ? "" : ", ", part.begin, part.end - 1, part.small);
  }
  for (const auto& [name, words] : made_of) {
    told_a.insert(name);
    out.findings.push_back({"taken_apart", name, "", words, 0, true});
  }
  std::erase_if(missing, [&](const std::string& name) { return told_a.contains(name); });
  std::erase_if(unused, [&](const std::string& name) { return told_b.contains(name); });
}

bool is_mild(const WeightRelation& relation) {
  constexpr double kRecomputed = 1e-5;  // in f32, in another order
  if (relation.id == "weights.small_error") return relation.error <= kRecomputed;
  return relation.id == "weights.rounded_bf16" || relation.id == "weights.rounded_f16" ||
         relation.id == "weights.rounded_f8" || relation.id == "weights.quantised";
}

}  // namespace

bool WeightsComparison::match() const {
  return std::none_of(findings.begin(), findings.end(), [](const WeightFinding& f) { return f.serious; });
}

WeightsComparison compare_weights(const WeightSource& a, const WeightSource& b) {
  WeightsComparison out;
  const Prints prints_a = prints_of(a), prints_b = prints_of(b);
  std::set<std::string> used;
  std::map<std::string, std::string> origin;  // of B's tensors, in A
  std::vector<std::string> missing, unused;
  std::string words;
  for (const auto& [name, print] : prints_b)
    if (prints_a.contains(name)) used.insert(name);
  for (const auto& [name, print] : prints_a) {
    check_interrupt("weights compare");
    const auto mine = a.find(name);
    if (!prints_b.contains(name)) {
      const std::string other = find_content(b, prints_b, name, print, *mine, used, words);
      if (other.empty()) {
        missing.push_back(name);
        continue;
      }
      used.insert(other), origin[other] = name;
      out.findings.push_back(
          {"renamed", name, other, fmt::format("is {}{}", other, words.empty() ? "" : ", " + words), 0, true});
      continue;
    }
    origin[name] = name;
    ++out.compared;
    const auto theirs = b.find(name);
    const WeightRelation relation = relate_weights(name, *theirs, *mine);
    if (!relation.id) {
      ++out.identical;
      continue;
    }
    WeightFinding finding{std::string(relation.id.id()), name, "", relation.words, relation.error, !is_mild(relation)};
    if (finding.serious && relation.id != "weights.transposed" && relation.id != "weights.parts_exchanged") {
      // Is it another tensor of A that sits here?
      const std::string other = find_content(a, prints_a, name, prints_b.at(name), *theirs, {}, words);
      if (!other.empty() && prints_b.at(name).squares > 0)
        finding.kind = "other_layer", finding.other = other, finding.words = "holds the values of " + other;
    }
    out.findings.push_back(std::move(finding));
  }
  for (const auto& [name, print] : prints_b)
    if (!used.contains(name)) unused.push_back(name);
  tell_parts(a, b, missing, unused, out);
  for (const std::string& name : missing)
    out.findings.push_back({"missing", name, "", "not in the other checkpoint under any name", 0, true});
  for (const std::string& name : unused)
    out.findings.push_back({"unused", name, "", "in the second checkpoint only", 0, true});
  std::stable_sort(out.findings.begin(), out.findings.end(),
                   [](const WeightFinding& x, const WeightFinding& y) { return x.serious > y.serious; });
  // Two names of B with one content, where A has two.
  const auto print_in_a = [&](const std::string& name) -> const Fingerprint* {
    const auto from = origin.find(name);
    return from == origin.end() ? nullptr : &prints_a.at(from->second);
  };
  for (auto i = prints_b.begin(); i != prints_b.end(); ++i)
    for (auto j = std::next(i); j != prints_b.end(); ++j) {
      const auto &p = i->second, &q = j->second;
      if (p.count < 16 || p.squares == 0 || p.count != q.count || p.sum != q.sum || p.squares != q.squares ||
          p.cubes != q.cubes)
        continue;
      const Fingerprint *x = print_in_a(i->first), *y = print_in_a(j->first);
      const bool same_in_a = x && y && x->squares == y->squares && x->sum == y->sum;
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

Text text_from(const WeightsComparison& comparison, size_t most_rows) {
  std::map<std::string, size_t> counts;
  for (const WeightFinding& f : comparison.findings) ++counts[f.kind];
  size_t serious = 0;
  for (const WeightFinding& f : comparison.findings) serious += f.serious;
  Text out = comparison.match() ? Text::of("MATCH: {} tensors under the same names, {} identical", comparison.compared,
                                           comparison.identical)
                                : Text::of("MISMATCH: {} finding{}; {} tensors under the same names, {} identical",
                                           serious, serious == 1 ? "" : "s", comparison.compared, comparison.identical);
  if (comparison.match() && comparison.identical < comparison.compared) out += ", the others rounded or quantised";
  out += "\n";
  for (const auto& [kind, count] : counts) out += Text::of("  {:<24} {}\n", kind, count);
  size_t row = 0;
  for (const WeightFinding& f : comparison.findings) {
    if (most_rows && row++ >= most_rows) {
      out += Text::of("  ... {} more: --limit 0 shows all\n", comparison.findings.size() - most_rows);
      break;
    }
    out += Text::of("  {:<24} {}  {}\n", f.kind, f.name, f.words.empty() ? f.other : f.words);
  }
  return out;
}

}  // namespace lockstep
