#include "diagnose/diagnose.h"

#include <algorithm>
#include <cmath>

#include "base/interrupt.h"
#include "diagnose/case/family.h"
#include "diagnose/text/tokens.h"

namespace lockstep {
namespace {

constexpr size_t kMostCauses = 3;

// Formulas are read in the module that holds the bad tensor: its own path in front of every name only hides them.
std::string without_path(std::string text, const std::string& path) {
  if (path.empty()) return text;
  for (size_t at = text.find(path + "."); at != std::string::npos; at = text.find(path + ".", at))
    text.erase(at, path.size() + 1);
  return text;
}

}  // namespace

Findings explain_pair(Case& pair) {
  Findings out;
  for (const Family& family : families())
    if (family.pair_only) family.search(pair, out);
  return out;
}

bool names_a_mistake(const std::vector<Finding>& causes) {
  return !causes.empty() && !causes[0].cause.is_effect();
}

bool is_right_on_its_inputs(Case& failing) {
  if (failing.r.empty() || failing.r.shape != failing.c.shape) return false;
  return std::any_of(families().begin(), families().end(),
                     [&](const Family& family) { return family.confirm && family.confirm(failing); });
}

std::optional<double> error_on_its_inputs(Case& stage, double small_enough) {
  if (stage.r.empty() || stage.r.shape != stage.c.shape) return std::nullopt;
  Findings ignored;
  stage.only_local = true;
  for (const Family& family : families()) {
    if (!family.recomputes) continue;
    family.search(stage, ignored);
    if (stage.local_error && *stage.local_error <= small_enough) break;
  }
  return stage.local_error;
}

std::vector<Finding> diagnose(Case& failing) {
  Findings found;
  if (failing.r.empty() || failing.c.empty()) return found;
  if (failing.r.size() != failing.c.size()) {  // other shapes have nothing to fit; texts of other lengths have words
    search_tokens(failing, found);
    search_other_ids(failing, found);
    return found;
  }
  for (const Family& family : families()) {
    check_interrupt("diagnose");
    family.search(failing, found);
  }
  const std::string scope =
      failing.role == Role::kInput || failing.is_leaf ? parent_of(failing.module) : failing.module;
  for (Finding& finding : found) {
    if (finding.look_at.empty()) finding.look_at = failing.where();
    if (finding.fix.empty()) finding.fix = finding.cause.entry().fix;
    if (finding.blame == Blame::kWeights) continue;  // weights are named in full
    finding.explanation = without_path(std::move(finding.explanation), scope);
    finding.fix = without_path(std::move(finding.fix), scope);
  }
  // What is left unexplained counts by orders of magnitude beyond the tolerance; then the simplest wins.
  const auto cost = [&](const Finding& finding) {
    const double excess = std::max(1.0, finding.residual / std::max(failing.tolerance, 1e-12));
    return finding.complexity + 2 * std::log10(excess);
  };
  std::stable_sort(found.begin(), found.end(), [&](const Finding& a, const Finding& b) { return cost(a) < cost(b); });
  std::vector<Finding> best;
  for (Finding& finding : found) {
    const bool repeated =
        std::any_of(best.begin(), best.end(), [&](const Finding& b) { return b.cause == finding.cause; });
    if (!repeated && best.size() < kMostCauses) best.push_back(std::move(finding));
  }
  for (size_t i = 0; i < best.size(); ++i) {
    const double next = i + 1 < best.size() ? std::max(best[i + 1].residual, best[i].residual) : failing.error;
    best[i].confidence = next / std::max(best[i].residual, 1e-12);
  }
  return best;
}

}  // namespace lockstep
