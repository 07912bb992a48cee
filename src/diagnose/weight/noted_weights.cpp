// The weights that both programs noted while they ran (weights.jsonl): shapes, statistics and checksums, without
// values. Where the two programs hold the same bytes elsewhere and not in this module, its weight is what is wrong,
// whatever the module computes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "diagnose/case/family.h"

namespace lockstep {
namespace {

constexpr double kSameStatistics = 1e-6, kSameFactor = 1e-4;
constexpr double kMostAreEqual = 0.5;  // of the reference's weights: fewer, and the programs keep them in other forms

struct Noted {
  Shape shape;
  double rms = 0, mean = 0, min = 0, max = 0;
  std::string checksum;
};

std::optional<Noted> noted_from(const Json& json) {
  try {
    return Noted{json.at("shape").get<Shape>(), json.at("rms").get<double>(), json.at("mean").get<double>(),
                 json.at("min").get<double>(),  json.at("max").get<double>(), json.at("checksum").get<std::string>()};
  } catch (const Json::exception&) {  // NaN, or an older run
    return std::nullopt;
  }
}

std::map<std::string, Noted> weights_of(const RunView& run, const std::string& module) {
  std::map<std::string, Noted> out;
  const auto modules = run.header.find("modules");
  if (modules == run.header.end() || !modules->is_object() || !modules->contains(module)) return out;
  const Json& entry = (*modules)[module];
  if (!entry.is_object() || !entry.contains("weights") || !entry["weights"].is_object()) return out;
  for (const auto& [name, json] : entry["weights"].items())
    if (auto noted = noted_from(json)) out.emplace(name, std::move(*noted));
  return out;
}

std::set<std::string> checksums_of(const RunView& run) {
  std::set<std::string> out;
  const auto modules = run.header.find("modules");
  if (modules == run.header.end() || !modules->is_object()) return out;
  for (const auto& [module, entry] : modules->items())
    for (const auto& [name, noted] : weights_of(run, module)) out.insert(noted.checksum);
  return out;
}

// Do the two programs keep their weights in the same form?
bool are_mostly_equal(const RunView& reference, const RunView& candidate) {
  const std::set<std::string> r = checksums_of(reference), c = checksums_of(candidate);
  size_t equal = 0;
  for (const std::string& checksum : r) equal += c.contains(checksum);
  return r.size() > 1 && static_cast<double>(equal) >= kMostAreEqual * static_cast<double>(r.size());
}

bool near(double a, double b, double share, double scale) {
  return std::fabs(a - b) <= share * scale;
}

std::string size_words(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Finding finding_for(const std::string& name, const Noted& r, const Noted& c) {
  Finding finding{.cause = "weights.different"};
  const bool same_numbers = near(r.rms, c.rms, kSameStatistics, r.rms) && r.min == c.min && r.max == c.max;
  const double factor = r.rms > 0 ? c.rms / r.rms : 0;
  const auto scaled = [&](double sign) {
    return near(c.mean, sign * factor * r.mean, kSameFactor, c.rms) &&
           near(c.max, factor * (sign > 0 ? r.max : -r.min), kSameFactor, std::fabs(c.max) + c.rms);
  };
  if (r.shape.size() == 2 && same_numbers && c.shape == Shape{r.shape[1], r.shape[0]}) {
    finding.cause = "linear.transposed_weight";
    finding.explanation = fmt::format("{} has the same numbers in both programs, {} and {}, in another order", name,
                                      size_words(r.shape), size_words(c.shape));
  } else if (same_numbers) {
    finding.cause = "weights.rearranged";
    finding.explanation = fmt::format("{} has the same numbers in both programs, in another order", name);
  } else if (c.rms == 0) {
    finding.cause = "weights.zeros";
    finding.explanation = fmt::format("{} is zero in yours", name);
  } else if (r.rms > 0 && std::fabs(factor - 1) > kSameFactor && (scaled(1) || scaled(-1))) {
    const double signed_factor = scaled(1) ? factor : -factor;
    finding.cause = "weights.scaled";
    finding.explanation = fmt::format("{} in yours is {:.6g} times the reference's", name, signed_factor);
  } else {
    finding.explanation = fmt::format("{} has other values in yours: rms {:.4g} and {:.4g}", name, r.rms, c.rms);
  }
  finding.explanation += "; the other weights are the same in both";
  return finding;
}

// Frameworks keep a kernel with its axes in orders of their own: the same numbers in another shape are no mistake.
bool is_the_kernel_of_another_framework(const Noted& r, const Noted& c) {
  const auto sorted = [](Shape shape) {
    std::sort(shape.begin(), shape.end());
    return shape;
  };
  return r.shape.size() > 2 && r.shape != c.shape && sorted(r.shape) == sorted(c.shape) &&
         near(r.rms, c.rms, kSameStatistics, r.rms) && r.min == c.min && r.max == c.max;
}

}  // namespace

void search_noted_weights(Case& failing, Findings& out) {
  if (failing.role != Role::kOutput || !failing.is_leaf || failing.candidate_record() == SIZE_MAX) return;
  const std::map<std::string, Noted> r = weights_of(failing.reference_run(), failing.module);
  if (r.empty()) return;
  // Of the module that made the tensor, not of one that it was worked back to.
  const RecordedTensor& ours = failing.reference_run().records[failing.reference_record()];
  const RecordedTensor& theirs = failing.candidate_run().records[failing.candidate_record()];
  if (ours.key.name != failing.module || ours.role != Role::kOutput || theirs.role != Role::kOutput) return;
  const std::map<std::string, Noted> c = weights_of(failing.candidate_run(), theirs.key.name);
  if (c.empty() || !are_mostly_equal(failing.reference_run(), failing.candidate_run())) return;
  for (const auto& [name, weight] : r) {
    const auto other = c.find(name);
    if (other == c.end() || other->second.checksum == weight.checksum) continue;
    if (is_the_kernel_of_another_framework(weight, other->second)) continue;
    Finding finding = finding_for(failing.module + "." + name, weight, other->second);
    finding.blame = Blame::kWeights;
    finding.seen = true;
    // Order alone, and other values, leave much open: whoever fits something finer comes first.
    const bool vague = finding.cause == "weights.rearranged" || finding.cause == "weights.different";
    finding.complexity = vague ? 2 : 0.3;
    finding.residual = failing.tolerance;
    out.push_back(std::move(finding));
  }
}

}  // namespace lockstep
