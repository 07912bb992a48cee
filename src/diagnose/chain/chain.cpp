// A port that records a tensor here and there: one of the steps in between was done otherwise.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/chain/token_chain.h"
#include "diagnose/search/budget.h"

namespace lockstep {
namespace {

constexpr int64_t kMostWork = int64_t{1} << 31;  // multiplications

// The tensor that the chain starts from was not recorded either: it may itself lie otherwise.
std::vector<StepVariation> arrangements(const std::string& name, const std::function<Tokens(const Tokens&)>& apply) {
  std::vector<StepVariation> out;
  const auto add = [&](Cause cause, std::string yours, std::string fix, auto&& move) {
    out.push_back({cause, std::move(yours), std::move(fix), 1.0, [=](const Tokens& x) {
                     Tokens moved = x;
                     const size_t width = static_cast<size_t>(x.width);
                     for (size_t i = 0; i < x.v.size(); ++i)
                       moved.v[i] = move(&x.v[i / width * width], i % width, width);
                     return apply(moved);
                   }});
  };
  const bool times = name.find("time") != std::string::npos;
  add(times ? Cause("timestep.cos_sin_order") : Cause("layout.parts_exchanged"), name + " with its halves exchanged",
      "exchange the halves", [](const double* x, size_t i, size_t n) { return x[(i + n / 2) % n]; });
  add(times ? Cause("timestep.sign") : Cause("affine.scale"), name + " with its second half negated",
      "turn the sign of the second half", [](const double* x, size_t i, size_t n) { return i < n / 2 ? x[i] : -x[i]; });
  add("layout.interleaved", name + " with its halves interleaved", "put one half after the other",
      [](const double* x, size_t i, size_t n) { return x[i / 2 + i % 2 * (n / 2)]; });
  add("layout.reversed", name + " in reverse", "turn it round",
      [](const double* x, size_t i, size_t n) { return x[n - 1 - i]; });
  for (const double by : {-1.0, 2.0, 0.5, 1000.0, 0.001})
    add("affine.scale", fmt::format("{} times {:g}", name, by), fmt::format("divide by {:g}", by),
        [by](const double* x, size_t i, size_t) { return by * x[i]; });
  return out;
}

}  // namespace

void search_chain(Case& failing, Findings& out) {
  const bool by_hand = std::any_of(failing.items.begin(), failing.items.end(), [](const Item& i) { return i.assumed; });
  if (!by_hand || failing.only_local || !std::isfinite(failing.error)) return;
  const TokenChain chain(failing);
  const auto& steps = chain.steps();
  if (steps.empty()) return;
  const Tokens whole = chain.outcome(steps.size() - 1, steps.back().apply);
  const double reference = distance(whole, chain.bad(false));
  if (!failing.explains(reference)) return;
  const double unchanged = distance(whole, chain.bad(true));
  std::optional<Finding> best;
  Budget budget(kMostWork);
  const auto consider = [&](size_t at, const StepVariation& change) {
    const double residual = distance(chain.outcome(at, change.apply), chain.bad(true));
    if (!failing.explains_candidate(residual) || !failing.is_better(residual, unchanged)) return;
    if (best && best->residual <= residual) return;
    const std::string& made = failing.reference_run().records[steps[at].record].key.name;
    best = Finding{.cause = change.cause,
                   .explanation = fmt::format("{} is not in your run; reference: {}; yours, to give what it gave: {}",
                                              made, steps[at].formula, change.yours),
                   .fix = change.fix,
                   .look_at = made,
                   .residual_reference = reference,
                   .residual = residual,
                   .complexity = change.complexity + 0.05 * static_cast<double>(at)};
  };
  for (size_t at = 0; at < steps.size(); ++at)
    for (const StepVariation& change : steps[at].variations)
      if (budget.spend(chain.work_from(at))) consider(at, change);
  if (failing.partner(chain.start()) == SIZE_MAX) {
    const std::string& name = failing.reference_run().records[chain.start()].key.name;
    for (const StepVariation& change : arrangements(name, steps.back().apply)) consider(steps.size() - 1, change);
  }
  if (best) out.push_back(std::move(*best));
}

}  // namespace lockstep
