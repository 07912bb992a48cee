// combined = uncond + s (cond - uncond), then each token scaled back to the length of cond, or not.
#include <fmt/format.h>

#include <cmath>

#include "compare/families/fit.h"
#include "compare/families/number_formats.h"

namespace lockstep {
namespace {

enum class Rescale {
  kNone,
  kToCond,
  kToUncond,
  kInverse,
  kChannels,
  kWhole,
  kDeviation,
  kCondByUncond,
  kUncondByCond,
  kInverseUncond
};
// What is held in a poorer format: nothing, the two predictions, every step, the combination.
enum class Held { kNone, kInputs, kSteps, kResult };

struct Params {
  double s = 1;
  Rescale rescale = Rescale::kNone;
  double blend = 1;  // share of the rescaled in the result
  Format format = nullptr;
  Held held = Held::kNone;
  double residual = INFINITY;
};

std::string formula(const Params& p) {
  static const char* const kWords[] = {"",
                                       ", each token scaled to the length of cond",
                                       ", each token scaled to the length of uncond",
                                       ", each token scaled by its length over that of cond",
                                       ", each channel scaled to the length of cond",
                                       ", the whole scaled to the length of cond",
                                       ", the whole scaled to the deviation of cond",
                                       ", each token times the length of cond over that of uncond",
                                       ", each token times the length of uncond over that of cond",
                                       ", each token scaled by its length over that of uncond"};
  static const char* const kHeld[] = {"", ", cond and uncond in ", ", every step in ", ", the combination in "};
  return fmt::format("uncond + {} (cond - uncond){}{}{}", number(p.s), kWords[static_cast<size_t>(p.rescale)],
                     p.blend == 1 ? "" : fmt::format(", {} of it with the rest unscaled", number(p.blend)),
                     p.format ? std::string(kHeld[static_cast<size_t>(p.held)]) + p.format->name : "");
}

double length(std::span<const float> x, int64_t from, int64_t count, int64_t stride, bool centred) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double value = x[static_cast<size_t>(from + i * stride)];
    sum += value, squares += value * value;
  }
  return std::sqrt(std::max(0.0, squares - (centred ? sum * sum / static_cast<double>(count) : 0)));
}

Values combined(const Params& p, const Values& a, const Values& b) {
  Values out = a;
  const Format inputs = p.held == Held::kInputs || p.held == Held::kSteps ? p.format : nullptr,
               steps = p.held == Held::kSteps ? p.format : nullptr;
  for (size_t i = 0; i < out.v.size(); ++i) {
    const double x = in_format(a.v[i], inputs), y = in_format(b.v[i], inputs);
    const double guided = in_format(p.s * in_format(x - y, steps), steps);
    out.v[i] = static_cast<float>(in_format(y + guided, p.held == Held::kInputs ? nullptr : p.format));
  }
  if (p.rescale == Rescale::kNone) return out;
  const bool whole = p.rescale == Rescale::kWhole || p.rescale == Rescale::kDeviation,
             column = p.rescale == Rescale::kChannels;
  const bool centred = p.rescale == Rescale::kDeviation;
  const int64_t groups = whole ? 1 : column ? a.last() : a.rows(), count = a.size() / groups;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t from = column ? g : g * count, stride = column ? a.last() : 1;
    const double own = length(out.v, from, count, stride, centred), cond = length(a.v, from, count, stride, centred),
                 uncond = length(b.v, from, count, stride, centred);
    double factor = p.rescale == Rescale::kToUncond        ? uncond / own
                    : p.rescale == Rescale::kInverse       ? own / cond
                    : p.rescale == Rescale::kInverseUncond ? own / uncond
                    : p.rescale == Rescale::kCondByUncond  ? cond / uncond
                    : p.rescale == Rescale::kUncondByCond  ? uncond / cond
                                                           : cond / own;
    if (own == 0 || cond == 0 || uncond == 0) factor = 1;
    factor = p.blend * factor + 1 - p.blend;
    for (int64_t i = 0; i < count; ++i)
      out.v[static_cast<size_t>(from + i * stride)] =
          static_cast<float>(out.v[static_cast<size_t>(from + i * stride)] * factor);
  }
  return out;
}

double residual_of(const Params& p, const Values& a, const Values& b, const Values& y) {
  double yy = squared_norm(y.v), dd = 0;
  const Values got = combined(p, a, b);
  for (size_t i = 0; i < y.v.size(); ++i) {
    const double d = static_cast<double>(got.v[i]) - y.v[i];
    dd += d * d;
  }
  return yy > 0 ? std::sqrt(dd / yy) : INFINITY;
}

// Row by row (or channel by channel) y = p cond + q uncond; s = p / (p + q) whatever the row was scaled by.
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
  const auto turned = [](const Values& x) { return permuted(x, {1, 0}); };
  for (double s : {solve_scale(a, b, y), solve_scale(turned(a), turned(b), turned(y))}) {
    const double rounded = std::round(s * 1000) / 1000;
    if (std::fabs(rounded - s) < 2e-3) s = rounded;
    for (const Rescale rescale :
         {Rescale::kNone, Rescale::kToCond, Rescale::kToUncond, Rescale::kInverse, Rescale::kChannels, Rescale::kWhole,
          Rescale::kDeviation, Rescale::kCondByUncond, Rescale::kUncondByCond, Rescale::kInverseUncond}) {
      Params p;
      p.s = s, p.rescale = rescale;
      p.residual = residual_of(p, a, b, y);
      if (p.residual < 0.97 * best.residual) best = p;
    }
  }
  if (best.residual > 1e-3)
    for (const Rescale rescale : {Rescale::kToCond, Rescale::kWhole, Rescale::kDeviation})
      for (double blend = 0.05; blend < 1; blend += 0.05) {
        Params p = best;
        p.rescale = rescale, p.blend = blend;
        p.residual = residual_of(p, a, b, y);
        if (p.residual < 0.5 * best.residual) best = p;
      }
  return best;
}

// y = p cond + q uncond, as it stands.
std::string plain_words(const Values& a, const Values& b, const Values& y, double& residual) {
  const std::vector<double> k = least_squares({a.v, b.v}, y.v);
  double dd = 0;
  for (size_t i = 0; i < y.v.size(); ++i) {
    const double d = k[0] * a.v[i] + k[1] * b.v[i] - y.v[i];
    dd += d * d;
  }
  residual = std::sqrt(dd / std::max(1e-300, squared_norm(y.v)));
  return fmt::format("{} cond + {} uncond", number(k[0]), number(k[1]));
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
  // All rows: some forms scale the whole.
  const auto rows = [](const Values& x) { return reshaped(x, {x.rows(), x.last()}); };
  const Values yr = rows(failing.r), yc = rows(failing.c);
  const Values cond_c = rows(failing.candidate_of(*cond)), uncond_c = rows(failing.candidate_of(*uncond));
  const Params r = fit(rows(failing.reference_of(*cond)), rows(failing.reference_of(*uncond)), yr);
  if (!failing.explains(r.residual)) return;
  const double with_reference = residual_of(r, cond_c, uncond_c, yc);
  if (failing.note_local(with_reference)) return;
  const Params c = fit(cond_c, uncond_c, yc);
  Finding finding{"",          fmt::format("reference: {}; yours: {}", formula(r), formula(c)),
                  "",          "",
                  r.residual,  c.residual,
                  0.7,         0,
                  Blame::kNone};
  if (!failing.explains_candidate(c.residual) || !failing.is_better(c.residual, with_reference))
    for (const NumberFormat& format : half_formats())
      for (const Held held : {Held::kInputs, Held::kSteps, Held::kResult}) {
        Params p = r;
        p.format = &format, p.held = held, p.residual = residual_of(p, cond_c, uncond_c, yc);
        if (!failing.explains_candidate(p.residual) || !failing.is_better(p.residual, with_reference)) continue;
        out.push_back({format.cause, fmt::format("reference: {}; yours: {}", formula(r), formula(p)),
                       "combine the two predictions in f32", "", r.residual, p.residual, 0.9, 0, Blame::kNone});
        return;
      }
  if (!failing.explains_candidate(c.residual)) {
    double residual = INFINITY;
    const std::string words = plain_words(cond_c, uncond_c, yc, residual);
    if (!failing.explains_candidate(residual) || !failing.is_better(residual, with_reference)) return;
    finding.cause = "guidance.scale", finding.residual = residual;
    finding.explanation = fmt::format("reference: {}; yours: {}", formula(r), words);
    finding.fix = "combine the two predictions as the reference does";
    out.push_back(std::move(finding));
    return;
  }
  if (!failing.is_better(c.residual, with_reference)) return;
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
