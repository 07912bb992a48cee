// combined = uncond + s (cond - uncond), then each token scaled back to the length of cond, or not.
#include <fmt/format.h>

#include <cmath>

#include "compare/families/fit.h"

namespace lockstep {
namespace {

enum class Rescale { kNone, kToCond, kToUncond };

struct Params {
  double s = 1;
  Rescale rescale = Rescale::kNone;
  double residual = INFINITY;
};

std::string formula(const Params& p) {
  return fmt::format("uncond + {} (cond - uncond){}", number(p.s),
                     p.rescale == Rescale::kToCond     ? ", each token scaled to the length of cond"
                     : p.rescale == Rescale::kToUncond ? ", each token scaled to the length of uncond"
                                                       : "");
}

double residual_of(const Params& p, const Values& a, const Values& b, const Values& y) {
  double dd = 0, yy = 0;
  for (int64_t i = 0; i < y.rows(); ++i) {
    double cc = 0, aa = 0, bb = 0;
    for (int64_t j = 0; j < y.last(); ++j) {
      const double u = b.row(i)[static_cast<size_t>(j)], c = a.row(i)[static_cast<size_t>(j)], m = u + p.s * (c - u);
      cc += m * m, aa += c * c, bb += u * u;
    }
    const double factor =
        p.rescale == Rescale::kNone || cc == 0 ? 1 : std::sqrt((p.rescale == Rescale::kToCond ? aa : bb) / cc);
    for (int64_t j = 0; j < y.last(); ++j) {
      const double u = b.row(i)[static_cast<size_t>(j)], c = a.row(i)[static_cast<size_t>(j)];
      const double target = y.row(i)[static_cast<size_t>(j)], d = factor * (u + p.s * (c - u)) - target;
      dd += d * d, yy += target * target;
    }
  }
  return yy > 0 ? std::sqrt(dd / yy) : INFINITY;
}

// Row by row y = p cond + q uncond; s = p / (p + q) whatever the row was scaled by.
double solve_scale(const Values& a, const Values& b, const Values& y) {
  double weighted = 0, weight = 0;
  for (int64_t i = 0; i < y.rows(); ++i) {
    const std::vector<double> k = least_squares({a.row(i), b.row(i)}, y.row(i));
    const double sum = k[0] + k[1];
    if (!(std::fabs(sum) > 1e-6)) continue;
    const double w = squared_norm(y.row(i));
    weighted += w * k[0] / sum, weight += w;
  }
  return weight > 0 ? weighted / weight : 1;
}

Params fit(const Values& a, const Values& b, const Values& y) {
  Params best;
  const double s = solve_scale(a, b, y);
  for (const Rescale rescale : {Rescale::kNone, Rescale::kToCond, Rescale::kToUncond}) {
    Params p{s, rescale, 0};
    p.residual = residual_of(p, a, b, y);
    if (p.residual < best.residual) best = p;
  }
  const double rounded = std::round(best.s * 1000) / 1000;
  if (std::fabs(rounded - best.s) < 2e-3) best.s = rounded, best.residual = residual_of(best, a, b, y);
  return best;
}

}  // namespace

void search_guidance(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || failing.r.last() < 4 || !std::isfinite(failing.error)) return;
  const auto tag_of = [&](const Item& item) {
    for (const auto& [key, value] : failing.reference_run().records[item.reference].key.tags)
      if (key == "pass") return value;
    return std::string();
  };
  const Item *cond = nullptr, *uncond = nullptr;
  for (const Item& item : failing.items) {
    if (item.shape != failing.r.shape) continue;
    const std::string pass = tag_of(item), leaf = leaf_of(item.name);
    if (!cond && pass == "cond" && failing.module.empty()) cond = &item;
    if (!uncond && pass == "uncond" && failing.module.empty()) uncond = &item;
  }
  if (!cond || !uncond) return;
  const auto rows = [](const Values& x) { return sampled(reshaped(x, {x.rows(), x.last()}), 64); };
  const Values yr = rows(failing.r), yc = rows(failing.c);
  const Params r = fit(rows(failing.reference_of(*cond)), rows(failing.reference_of(*uncond)), yr);
  if (!failing.explains(r.residual)) return;
  if (failing.note_local(residual_of(r, rows(failing.candidate_of(*cond)), rows(failing.candidate_of(*uncond)), yc)))
    return;
  const Params c = fit(rows(failing.candidate_of(*cond)), rows(failing.candidate_of(*uncond)), yc);
  if (!failing.explains_candidate(c.residual) ||
      !failing.is_better(c.residual,
                         residual_of(r, rows(failing.candidate_of(*cond)), rows(failing.candidate_of(*uncond)), yc)))
    return;
  Finding finding{"",          fmt::format("reference: {}; yours: {}", formula(r), formula(c)),
                  "",          "",
                  r.residual,  c.residual,
                  0.7,         0,
                  Blame::kNone};
  // Exchanged passes read as s' = 1 - s; with rescaling the length then follows the other pass.
  if (std::fabs(c.s - (1 - r.s)) < 1e-2)
    finding.cause = "guidance.exchanged", finding.fix = "conditional and unconditional prediction are exchanged";
  else if (std::fabs(c.s - r.s) > 1e-3 * std::fabs(r.s))
    finding.cause = "guidance.scale", finding.fix = fmt::format("use guidance {}, not {}", number(r.s), number(c.s));
  else
    finding.cause = "guidance.rescale",
    finding.fix = r.rescale == Rescale::kNone
                      ? "do not rescale the prediction"
                      : "scale each token of the combined prediction back to the length of the conditional one";
  out.push_back(std::move(finding));
}

}  // namespace lockstep
