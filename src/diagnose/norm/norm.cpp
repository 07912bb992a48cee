// y = norm(x) * weight + bias: kind, eps, axis, how the weight is used.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/norm/norm_search.h"
#include "diagnose/search/functions.h"

namespace lockstep {
namespace {

Finding describe(const NormParams& r, const NormParams& c) {
  Finding out{.cause = {},
              .explanation = fmt::format("reference: {}; yours: {}", formula(r), formula(c)),
              .residual_reference = r.residual,
              .residual = c.residual,
              .complexity = 0.8};
  const auto set = [&](Cause cause, std::string fix) { out.cause = cause, out.fix = std::move(fix); };
  Format held = nullptr;
  for (const Format format : {c.input, c.squares, c.factor, c.normal, c.weighted, c.statistic, c.square, c.sum})
    if (format) held = format;
  if (held) {
    set(held->cause, "normalise in f32 and cast afterwards");
  } else if (c.twice) {
    set("norm.twice", "normalise once");
  } else if (c.kind == NormKind::kNone) {
    set("norm.missing", fmt::format("apply {} here", formula(r)));
  } else if (c.kind != r.kind) {
    const bool factor = c.kind == NormKind::kUnit || r.kind == NormKind::kUnit;
    set(factor ? Cause("norm.factor") : Cause("norm.kind"),
        fmt::format("use {} in place of {}", kind_name(r.kind), kind_name(c.kind)));
  } else if (c.power != r.power) {
    set("norm.kind", c.power > 0 ? fmt::format("divide by the root, do not multiply by it: {}", formula(r))
                                 : fmt::format("divide by the root of the mean of the squares: {}", formula(r)));
  } else if (c.part != r.part) {
    set("norm.axis", fmt::format("take the statistic of all channels: {}", formula(r)));
  } else if (c.counted != r.counted) {
    set("norm.factor", fmt::format("divide the sum of the squares by the number of channels: {}", formula(r)));
  } else if (c.span != r.span) {
    set("norm.axis",
        fmt::format("normalise{} instead", r.span == NormSpan::kChannels ? " over the channels" : span_name(r.span)));
  } else if (c.use != r.use) {
    set(c.use == WeightUse::kNone                                      ? Cause("norm.weight_missing")
        : r.use == WeightUse::kNone                                    ? Cause("norm.weight_added")
        : c.use == WeightUse::kOnePlus || r.use == WeightUse::kOnePlus ? Cause("norm.one_plus_weight")
                                                                       : Cause("norm.weight_use"),
        fmt::format("multiply as the reference does: {}", formula(r)));
  } else if (c.bias != r.bias) {
    set(r.bias ? Cause("norm.bias_missing") : Cause("norm.bias_added"),
        r.bias ? "add the bias of the norm" : "do not add a bias");
  } else if (c.weight != r.weight) {
    set("norm.other_weight", fmt::format("load this norm's own weight; yours holds {}", c.weight));
    out.blame = Blame::kWeights;
  } else if (c.least != r.least) {
    set("norm.eps", "add eps to the mean of the squares, do not hold it to a smallest value");
  } else {
    set("norm.eps", r.eps_outside == c.eps_outside ? fmt::format("set eps to {:g}", r.eps)
                                                   : std::string("add eps to the variance, before the root is taken"));
  }
  return out;
}

// The right norm with numbers of its own for each channel: which, in terms of the reference's?
void search_free_weight(Case& failing, const NormSearch& search, const NormParams& r, Findings& out) {
  const NormSearch::FreeWeight free = search.free_weight(r);
  if (!failing.explains_candidate(free.residual) || !failing.is_better(free.residual, search.measure(true, r))) return;
  const std::vector<float> ones(free.a.size(), 1), zeros(free.b.size(), 0);
  const std::vector<float>& weight = search.weight() && r.use != WeightUse::kNone ? *search.weight() : ones;
  const std::vector<float>& bias = search.bias() && r.bias ? *search.bias() : zeros;
  const double a_error = relative_error(free.a, weight), b_error = rms(free.b) / std::max(1e-30, rms(free.a));
  const bool bias_differs = relative_error(free.b, bias) > 0.02 && std::max(rms(bias), b_error) > 1e-3;
  Finding finding{.cause = "norm.different_weight",
                  .residual_reference = r.residual,
                  .residual = free.residual,
                  .complexity = 1.4,
                  .blame = Blame::kWeights};
  if (a_error < 0.01 && bias_differs) {
    finding.cause = rms(bias) == 0                   ? Cause("norm.bias_added")
                    : rms(free.b) < 1e-3 * rms(bias) ? Cause("norm.bias_missing")
                                                     : Cause("norm.other_bias");
    finding.explanation = fmt::format("reference: {}; yours: the same with another vector added", formula(r));
    finding.fix = "check the bias of this norm";
  } else {
    const Shape shape{static_cast<int64_t>(free.a.size())};
    Case vectors = failing.with_pair({shape, weight}, {shape, free.a});
    vectors.tolerance = std::max(5e-3, failing.tolerance);
    const Findings found = explain_pair(vectors);
    const auto best = std::min_element(found.begin(), found.end(),
                                       [](const Finding& a, const Finding& b) { return a.complexity < b.complexity; });
    finding.explanation = fmt::format("reference: {}; yours: the same with another weight{}", formula(r),
                                      found.empty() ? ", which is none of the checkpoint's"
                                                    : fmt::format(" ({}: {})", best->cause.id(), best->explanation));
    finding.fix = fmt::format("compare the loaded weight of {} with the file", failing.module);
  }
  out.push_back(std::move(finding));
}

// The right norm of an input that was changed on its way in: an activation before it, heads cut otherwise.
bool search_input(Case& failing, const NormSearch& search, const Item& input, const NormParams& r, Findings& out) {
  const Values& x = failing.candidate_of(input);
  const double unchanged = search.measure(true, r);
  const auto fits = [&](double residual, Cause cause, const std::string& words, std::string fix) {
    if (!failing.explains_candidate(residual) || !failing.is_better(residual, unchanged)) return false;
    out.push_back({.cause = cause,
                   .explanation = fmt::format("reference: {}; yours: the same of {}", formula(r), words),
                   .fix = std::move(fix),
                   .residual_reference = r.residual,
                   .residual = residual});
    return true;
  };
  for (const ElementFunction& function : element_functions().subspan(1)) {
    if (!function.is_activation) continue;
    if (fits(search.measure_after(function.f, r), "activation.added", function.name,
             "normalise first, then apply the activation"))
      return true;
  }
  if (failing.r.rank() < 3) return false;
  const int64_t heads = failing.r.dim(-2), size = failing.r.last(), tokens = x.size() / (heads * size);
  if (heads < 2 || tokens * heads * size != x.size()) return false;
  const Values strided = permuted(reshaped(x, {tokens, size, heads}), {0, 2, 1});
  return fits(search.measure_from(strided, r), "layout.heads", "x with the head's number running fastest",
              "split the projection into heads first, then the head's channels: [tokens, heads, d]");
}

}  // namespace

void search_norm(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || !failing.is_leaf || failing.role == Role::kInput) return;
  for (const Item* input : equal_size_items(failing, 6)) {
    if (failing.candidate_of(*input).size() != failing.r.size()) continue;
    const NormSearch search(failing, *input);
    const NormParams r = search.reference();
    if (r.kind == NormKind::kNone || !failing.explains(r.residual)) continue;
    const double with_reference = search.measure(true, r);
    if (failing.note_local(with_reference)) return;
    NormParams c = search.candidate(r);
    if (!failing.explains_candidate(c.residual) || c.residual > 2 * failing.tolerance) {
      const NormParams other = search.other_weight(r);
      if (other.residual < 0.3 * c.residual) c = other;
    }
    if (failing.explains_candidate(c.residual) && failing.is_better(c.residual, with_reference))
      out.push_back(describe(r, c));
    else if (!search_input(failing, search, *input, r, out))
      search_free_weight(failing, search, r, out);
    return;
  }
}

bool confirm_norm(Case& failing) {
  if (failing.r.rank() < 2 || !failing.is_leaf) return false;
  for (const Item* input : equal_size_items(failing, 2)) {
    const NormSearch search(failing, *input);
    const NormParams r = search.reference();
    if (r.kind != NormKind::kNone && failing.explains(r.residual) && failing.explains(search.measure(true, r)))
      return true;
  }
  return false;
}

}  // namespace lockstep
