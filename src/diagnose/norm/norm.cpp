// y = norm(x) * weight + bias: kind, eps, axis, how the weight is used.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/norm/norm_probe.h"
#include "diagnose/search/functions.h"

namespace lockstep {
namespace {

constexpr double kUsualEps[] = {1e-6, 1e-5, 1e-8, 1e-12, 1e-3, 1e-2, 1e-4, 0.0};
constexpr int64_t kMostNormForms = 4096;  // forms

std::vector<NormParams> norm_forms(const NormProbe& probe) {
  std::vector<NormParams> out;
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer, NormKind::kUnit, NormKind::kNone})
    for (const double eps : kUsualEps) {
      if ((kind == NormKind::kNone || kind == NormKind::kUnit) && eps != 1e-6) continue;
      for (const NormSpan span : {NormSpan::kChannels, NormSpan::kHeads}) {
        if (span == NormSpan::kHeads && (probe.heads() < 2 || kind == NormKind::kNone)) continue;
        for (const WeightUse use : {WeightUse::kNone, WeightUse::kPlain, WeightUse::kOnePlus}) {
          NormParams& p = out.emplace_back();
          p.kind = kind, p.eps = eps, p.span = span, p.use = use, p.bias = use != WeightUse::kNone;
        }
      }
    }
  return out;
}

EditedForm<NormParams> fit_norm_reference(const NormProbe& probe) {
  return fit_reference(
      norm_forms(probe), [&](const NormParams& p) { return probe.measure(false, p); }, 0);
}

EditName other_kind(const NormParams& r, NormKind kind) {
  if (kind == NormKind::kNone) return {"norm.missing", fmt::format("apply {} here", formula(r))};
  const bool factor = kind == NormKind::kUnit || r.kind == NormKind::kUnit;
  return {factor ? Cause("norm.factor") : Cause("norm.kind"),
          fmt::format("use {} in place of {}", kind_name(r.kind), kind_name(kind))};
}

EditName other_span(const NormParams& r) {
  return {"norm.axis",
          fmt::format("normalise{} instead", r.span == NormSpan::kChannels ? " over the channels" : span_name(r.span))};
}

EditName other_use(const NormParams& r, WeightUse use) {
  return {use == WeightUse::kNone                                      ? Cause("norm.weight_missing")
          : r.use == WeightUse::kNone                                  ? Cause("norm.weight_added")
          : use == WeightUse::kOnePlus || r.use == WeightUse::kOnePlus ? Cause("norm.one_plus_weight")
                                                                       : Cause("norm.weight_use"),
          fmt::format("multiply as the reference does: {}", formula(r))};
}

EditName other_eps(const NormParams& r) {
  return {"norm.eps", fmt::format("set eps to {:g}", r.eps)};
}

using NormEdits = std::vector<Edit<NormParams>>;

NormEdits usual_edits(const NormParams& r, const NormProbe& probe) {
  NormEdits out;
  const auto add = [&](const EditName& name, auto&& apply) { out.push_back({name, apply}); };
  for (const NormKind kind :
       {NormKind::kRms, NormKind::kLayer, NormKind::kUnit, NormKind::kNone, NormKind::kCentred, NormKind::kVariance,
        NormKind::kSample, NormKind::kMeanAbs, NormKind::kLargest, NormKind::kMeanKept, NormKind::kCentredRms})
    for (const WeightUse use : {WeightUse::kNone, WeightUse::kPlain, WeightUse::kOnePlus})
      if (kind != r.kind || use != r.use)
        add(kind != r.kind ? other_kind(r, kind) : other_use(r, use),
            [=](NormParams& p) { p.kind = kind, p.use = use, p.bias = p.bias && use != WeightUse::kNone; });
  for (const double eps : kUsualEps) {
    if (eps != r.eps) add(other_eps(r), [=](NormParams& p) { p.eps = eps; });
    add({"norm.eps", "add eps to the variance, before the root is taken"},
        [=](NormParams& p) { p.eps = eps, p.eps_outside = true; });
  }
  for (const NormSpan span : {NormSpan::kChannels, NormSpan::kHeads})
    if (span != r.span && (span != NormSpan::kHeads || probe.heads() > 1))
      add(other_span(r), [=](NormParams& p) { p.span = span; });
  if (probe.weight())
    for (const WeightUse use : {WeightUse::kTwice, WeightUse::kInverse, WeightUse::kBefore})
      add(other_use(r, use), [=](NormParams& p) { p.use = use; });
  if (probe.bias())
    add(r.bias ? EditName{"norm.bias_missing", "add the bias of the norm"}
               : EditName{"norm.bias_added", "do not add a bias"},
        [](NormParams& p) { p.bias = !p.bias; });
  using Held = Format NormParams::*;
  for (const NumberFormat& format : half_formats())
    for (const std::vector<Held>& held :
         std::initializer_list<std::vector<Held>>{{&NormParams::input},
                                                  {&NormParams::normal},
                                                  {&NormParams::squares},
                                                  {&NormParams::factor},
                                                  {&NormParams::statistic},
                                                  {&NormParams::square},
                                                  {&NormParams::sum},
                                                  {&NormParams::statistic, &NormParams::square},
                                                  {&NormParams::input, &NormParams::normal},
                                                  {&NormParams::squares, &NormParams::factor},
                                                  {&NormParams::input, &NormParams::squares, &NormParams::factor},
                                                  {&NormParams::weighted}})
      add({format.cause, "normalise in f32 and cast afterwards"}, [held, &format](NormParams& p) {
        for (const Held each : held) p.*each = &format;
      });
  return out;
}

// The statistic of other elements than the channels of a token: of a group of them, of all tokens, of both. Such a norm
// is mostly of another kind too, with an eps of its own.
NormEdits edits_over_other_elements(const NormParams& r, const NormProbe& probe) {
  NormEdits out;
  const auto add = [&](NormSpan span, int64_t groups) {
    for (const double eps : {r.eps, 1e-6, 1e-5, 1e-3})
      for (const NormKind kind : {NormKind::kLayer, NormKind::kRms, NormKind::kUnit})
        if (kind != NormKind::kUnit || r.kind == kind)
          out.push_back({kind != r.kind ? other_kind(r, kind) : other_span(r),
                         [=](NormParams& p) { p.span = span, p.groups = groups, p.kind = kind, p.eps = eps; }});
  };
  add(NormSpan::kTokens, 1), add(NormSpan::kAll, 1);
  for (int64_t groups = 2; groups <= 64 && groups < probe.channels(); ++groups)
    if (probe.channels() % groups == 0) add(NormSpan::kGroups, groups), add(NormSpan::kGroupsOfAll, groups);
  return out;
}

NormEdits edits_along_other_axes(const NormParams& r, const Case& failing) {
  NormEdits out;
  if (r.span != NormSpan::kChannels) return out;
  const int own = channel_axis(failing.name, failing.r.shape);
  for (int axis = 0; axis < static_cast<int>(failing.r.rank()); ++axis)
    if (axis != own && failing.r.dim(axis) > 1)
      for (const NormKind kind : {NormKind::kRms, NormKind::kLayer})
        for (const bool root : {false, true})
          out.push_back({kind != r.kind ? other_kind(r, kind) : other_span(r), [=](NormParams& p) {
                           p.kind = kind, p.span = NormSpan::kAxis, p.axis = axis, p.root_of_channels = root;
                         }});
  return out;
}

// The usual edits; else other elements and axes; else an eps of any size, the norm of the norm, or what is solved for.
EditedForm<NormParams> best_edit(const Case& failing, const NormProbe& probe, const NormParams& r) {
  Budget budget(kMostNormForms);
  EditSearch<NormParams> search(
      r, [&](const NormParams& p) { return probe.measure(true, p); }, 1, budget);
  const auto is_exact = [&] { return failing.explains(search.best().residual); };
  search.try_each(usual_edits(r, probe));
  if (!is_exact()) search.try_each(edits_over_other_elements(r, probe));
  if (!is_exact()) search.try_each(edits_along_other_axes(r, failing));
  if (search.best().residual <= 2 * failing.tolerance) return search.best();
  search.try_each({{{"norm.twice", "normalise once"}, [](NormParams& p) { p.twice = true; }}});
  search.try_number({other_eps(r), [](NormParams& p, double eps) { p.eps = eps; }, false, 1e-9, 1e4});
  if (!is_exact()) search.solve([&](const NormParams& p, Budget&) { return probe.by_row_factor(p); });
  search.solve([&](const NormParams& p, Budget&) { return probe.with_other_weight(p); });
  return search.best();
}

// The right norm with numbers of its own for each channel: which, in terms of the reference's?
void search_free_weight(Case& failing, const NormProbe& probe, const NormParams& r, const Report& report) {
  const NormProbe::FreeWeight free = probe.free_weight(r);
  if (!failing.explains_candidate(free.residual) || !failing.is_better(free.residual, probe.measure(true, r))) return;
  const std::vector<float> ones(free.a.size(), 1), zeros(free.b.size(), 0);
  const std::vector<float>& weight = probe.weight() && r.use != WeightUse::kNone ? *probe.weight() : ones;
  const std::vector<float>& bias = probe.bias() && r.bias ? *probe.bias() : zeros;
  const double a_error = relative_error(free.a, weight), b_error = rms(free.b) / std::max(1e-30, rms(free.a));
  const bool bias_differs = relative_error(free.b, bias) > 0.02 && std::max(rms(bias), b_error) > 1e-3;
  if (a_error < 0.01 && bias_differs) {
    const Cause cause = rms(bias) == 0                   ? Cause("norm.bias_added")
                        : rms(free.b) < 1e-3 * rms(bias) ? Cause("norm.bias_missing")
                                                         : Cause("norm.other_bias");
    report.add({cause, "check the bias of this norm", Blame::kWeights}, "the same with another vector added",
               free.residual, 1.4);
    return;
  }
  const Shape shape{static_cast<int64_t>(free.a.size())};
  Case vectors = failing.with_pair({shape, weight}, {shape, free.a});
  vectors.tolerance = std::max(5e-3, failing.tolerance);
  const Findings found = explain_pair(vectors);
  const auto best = std::min_element(found.begin(), found.end(),
                                     [](const Finding& a, const Finding& b) { return a.complexity < b.complexity; });
  report.add(
      {"norm.different_weight", fmt::format("compare the loaded weight of {} with the file", failing.module),
       Blame::kWeights},
      "the same with another weight" + (found.empty() ? ", which is none of the checkpoint's"
                                                      : fmt::format(" ({}: {})", best->cause.id(), best->explanation)),
      free.residual, 1.4);
}

// The right norm of an input that was changed on its way in: an activation before it, heads cut otherwise.
bool search_input(Case& failing, const NormProbe& probe, const Item& input, const NormParams& r, const Report& report) {
  const Values& x = failing.candidate_of(input);
  const double unchanged = probe.measure(true, r);
  const auto fits = [&](double residual, const EditName& name, const std::string& words) {
    return failing.explains_candidate(residual) && failing.is_better(residual, unchanged) &&
           report.add(name, "the same of " + words, residual);
  };
  for (const ElementFunction& function : element_functions().subspan(1))
    if (function.is_activation &&
        fits(probe.measure_after(function.f, r), {"activation.added", "normalise first, then apply the activation"},
             function.name))
      return true;
  if (failing.r.rank() < 3) return false;
  const int64_t heads = failing.r.dim(-2), size = failing.r.last(), tokens = x.size() / (heads * size);
  if (heads < 2 || tokens * heads * size != x.size()) return false;
  const Values strided = permuted(reshaped(x, {tokens, size, heads}), {0, 2, 1});
  return fits(probe.measure_from(strided, r),
              {"layout.heads", "split the projection into heads first, then the head's channels: [tokens, heads, d]"},
              "x with the head's number running fastest");
}

}  // namespace

void search_norm(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || !failing.is_leaf || failing.role == Role::kInput) return;
  for (const Item* input : equal_size_items(failing, 6)) {
    if (failing.candidate_of(*input).size() != failing.r.size()) continue;
    const NormProbe probe(failing, *input);
    const EditedForm<NormParams> r = fit_norm_reference(probe);
    if (r.form.kind == NormKind::kNone || !failing.explains(r.residual)) continue;
    const double with_reference = probe.measure(true, r.form);
    if (failing.note_local(with_reference)) return;
    const Report report(formula(r.form), r.residual, out);
    const EditedForm<NormParams> c = best_edit(failing, probe, r.form);
    if (failing.explains_candidate(c.residual) && failing.is_better(c.residual, with_reference))
      report.add(c.name(), formula(c.form), c.residual, 0.8);
    else if (!search_input(failing, probe, *input, r.form, report))
      search_free_weight(failing, probe, r.form, report);
    return;
  }
}

bool confirm_norm(Case& failing) {
  if (failing.r.rank() < 2 || !failing.is_leaf) return false;
  for (const Item* input : equal_size_items(failing, 2)) {
    const NormProbe probe(failing, *input);
    const EditedForm<NormParams> r = fit_norm_reference(probe);
    if (r.form.kind != NormKind::kNone && failing.explains(r.residual) && failing.explains(probe.measure(true, r.form)))
      return true;
  }
  return false;
}

}  // namespace lockstep
