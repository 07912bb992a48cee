// Modulation, gates, residuals: y = a[c] * x + g[c] * f + b[c] with coefficients that have names.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/norm/norm_form.h"
#include "diagnose/pointwise/channelwise_search.h"
#include "diagnose/search/number_formats.h"
#include "measure/line_fit.h"

namespace lockstep {
namespace {

using Formula = ChannelFormula;

// Of addends the stream is what was there first; a branch was made from it.
bool is_branch(Case& failing, const ChannelSearch& search, const Formula& r, const Formula::Term& term) {
  const auto made = [&](int index) {
    const Item* item = search.item(index);
    return item ? first_with_these_values(failing.reference_run(), item->reference) : SIZE_MAX;
  };
  return std::any_of(r.terms.begin(), r.terms.end(), [&](const Formula::Term& other) {
    return other.item != term.item && made(other.item) < made(term.item);
  });
}

// Was the reference's tensor made by a norm from the one yours uses?
bool skips_norm(Case& failing, const Item& wanted, const Item& used) {
  const std::string& module = failing.structure().site(wanted.reference).module;
  if (module.empty() || wanted.role != Role::kOutput) return false;
  std::string leaf = leaf_of(module);
  std::transform(leaf.begin(), leaf.end(), leaf.begin(), [](unsigned char c) { return std::tolower(c); });
  if (leaf.find("norm") == std::string::npos && leaf.find("ln") == std::string::npos) return false;
  const Values& x = failing.reference_of(used);
  for (const size_t i : failing.structure().records_of(module, Role::kInput, wanted.reference))
    if (failing.load_reference(i).v == x.v) return true;
  return false;
}

// The one difference that matters, in order of plainness.
Finding describe(Case& failing, const ChannelSearch& search, const Formula& r, const Formula& c) {
  Finding out{.cause = {},
              .explanation = fmt::format("reference: {}; yours: {}", search.words(r), search.words(c)),
              .residual_reference = r.residual,
              .residual = c.residual,
              .complexity = 0.8};
  const std::string wanted = "compute " + search.words(r);
  const auto set = [&](Cause cause, std::string fix) { out.cause = cause, out.fix = std::move(fix); };
  if (c.terms.size() == 1 && r.terms.size() > 1 && !r.of(c.terms[0].item) && c.terms[0].coefficient.is(1) &&
      c.offset.is(0)) {
    set("stage.replaced", "what is added here is left out, and another tensor passed on: " + wanted);
    return out;
  }
  // The reference passes one tensor on and adds nothing: what yours is made of is no residual.
  if (r.terms.size() == 1 && r.terms[0].coefficient.is(1) && r.offset.is(0) && c.terms.size() > 1 &&
      !c.of(r.terms[0].item)) {
    set("stage.replaced", fmt::format("pass {} on", search.label(r.terms[0].item)));
    out.complexity = 1.3;  // one tensor that equals yours says it more plainly
    return out;
  }
  for (const Formula::Term& term : r.terms) {  // something left out
    if (c.of(term.item)) continue;
    const bool replaced = c.terms.size() == r.terms.size();
    const Item* wanted_item = search.item(term.item);
    const Item* used = nullptr;
    for (const Formula::Term& other : c.terms)
      if (!r.of(other.item)) used = search.item(other.item);
    if (replaced && used && wanted_item && skips_norm(failing, *wanted_item, *used))
      set("norm.missing", fmt::format("use {}, the normalised tensor, not {}", wanted_item->label(), used->label()));
    else if (replaced && r.terms.size() == 1 && term.coefficient.is(1) && c.terms[0].coefficient.is(1) &&
             r.offset.is(0) && c.offset.is(0))
      set("stage.replaced", fmt::format("pass {} on, not {}", search.label(term.item), search.label(c.terms[0].item)));
    else if (replaced && r.terms.size() == 1)  // the right modulation of another tensor
      set("stage.replaced", fmt::format("use {} here, not {}", search.label(term.item), search.label(c.terms[0].item)));
    else if (replaced)
      set("residual.other_input", fmt::format("add {} here, not another tensor", search.label(term.item)));
    else if (term.coefficient.is_vector())
      set("residual.branch_missing",
          fmt::format("add {} * {}", search.label(term.item), search.words(term.coefficient)));
    else if (is_branch(failing, search, r, term))
      set("residual.branch_missing", fmt::format("add {}, which was made for this", search.label(term.item)));
    else
      set("residual.missing", fmt::format("add {} (the residual)", search.label(term.item)));
    return out;
  }
  for (const Formula::Term& term : c.terms)
    if (!r.of(term.item)) {
      set("residual.added", fmt::format("do not add {}", search.label(term.item)));
      return out;
    }
  for (const Formula::Term& term : r.terms) {
    const Coefficient &kr = term.coefficient, &kc = *c.of(term.item);
    if (kr == kc) continue;
    const bool alone = r.terms.size() == 1;
    if (kr.is_vector() && kc.is_vector() && kr.vector == c.offset.vector && kc.vector == r.offset.vector)
      set("modulate.shift_scale_exchanged", "exchange shift and scale: " + wanted);
    else if (kr.is_vector() && kr.vector == kc.vector && !alone && kr.is_plain() && kc.is_plain() &&
             kr.factor == -kc.factor)
      set("residual.sign", fmt::format("the sign of {} is wrong", search.label(term.item)));
    else if (kr.is_vector() && kr.vector == kc.vector)
      set(kr.is_one_plus() && kc.is_plain() && kc.factor == 1 ? Cause("modulate.one_plus_missing")
          : alone                                             ? Cause("modulate.form")
                                                              : Cause("gate.form"),
          "use " + search.words(kr) + " in place of " + search.words(kc));
    else if (kr.is_vector() && kc.is_vector())
      set(alone ? Cause("modulate.other_part") : Cause("gate.other_part"),
          "take " + search.words(kr) + ", not " + search.words(kc));
    else if (kr.is_vector())
      set(alone
              ? (c.offset == r.offset && !r.offset.is(0) ? Cause("modulate.scale_missing") : Cause("modulate.missing"))
              : Cause("gate.missing"),
          fmt::format("multiply {} by {}", search.label(term.item), search.words(kr)));
    else if (kc.is_vector())
      set(alone ? Cause("modulate.added") : Cause("gate.added"),
          fmt::format("do not multiply {} by {}", search.label(term.item), search.words(kc)));
    else if (kr.constant == -kc.constant)
      set("residual.sign", fmt::format("the sign of {} is wrong", search.label(term.item)));
    else
      set(alone ? Cause("affine.scale") : Cause("residual.factor"),
          kr.is(1) ? fmt::format("use {} without the factor {}", search.label(term.item), search.words(kc))
                   : fmt::format("multiply {} by {}, not by {}", search.label(term.item), search.words(kr),
                                 search.words(kc)));
    return out;
  }
  if (r.offset.is_vector() && c.offset.is(0))
    set("modulate.shift_missing", "add " + search.words(r.offset));
  else if (r.offset.is_vector() && c.offset.is_vector() && r.offset.vector != c.offset.vector)
    set("modulate.other_part", "add " + search.words(r.offset) + ", not " + search.words(c.offset));
  else
    set("modulate.shift", wanted);
  return out;
}

// The reference's tensor itself with something more, or less.
void search_from_reference(Case& failing, const ChannelSearch& search, Findings& out) {
  const Formula c = search.best_from_reference();
  if (c.terms.empty() || !failing.explains_candidate(c.residual)) return;
  Finding finding{.cause = {},
                  .explanation = fmt::format("reference: y; yours: {}", search.words(c)),
                  .residual = c.residual,
                  .complexity = 1.6};
  const auto set = [&](Cause cause, std::string fix) { finding.cause = cause, finding.fix = std::move(fix); };
  for (const Formula::Term& term : c.terms) {
    if (search.is_reference(term.item)) continue;
    const std::string label = search.label(term.item);
    const Coefficient& k = term.coefficient;
    if (k.is(-1) || (k.is_vector() && k.factor < 0))
      set(k.is_vector() ? Cause("residual.branch_missing") : Cause("residual.missing"), fmt::format("add {}", label));
    else if (k.is(-2))
      set("residual.sign", fmt::format("the sign of {} is wrong", label));
    else if (k.is(1) || k.is_vector())
      set("residual.added", fmt::format("do not add {}", label));
    else
      set("residual.factor", fmt::format("{} counts {} times too much", label, search.words(k)));
    out.push_back(std::move(finding));
    return;
  }
  const Coefficient& own = c.terms[0].coefficient;
  if (own.is_vector())
    set("modulate.added", "the reference's result is not multiplied by " + search.words(own));
  else if (own.is(1) && c.offset.is_vector())
    set(c.offset.factor < 0 ? Cause("modulate.shift_missing") : Cause("modulate.shift"),
        (c.offset.factor < 0 ? "add " : "do not add ") + search.words(c.offset));
  else
    return;  // a number alone: the affine rest says it better
  out.push_back(std::move(finding));
}

// [rows, channels] each normalised by itself, without a weight.
Values normalised(const Values& x, NormKind kind) {
  NormParams p;
  p.kind = kind;
  Values out = x;
  std::vector<double> row(static_cast<size_t>(x.last()));
  for (int64_t i = 0; i < x.rows(); ++i) {
    std::copy(x.row(i).begin(), x.row(i).end(), row.begin());
    normalise(row.data(), x.last(), 1, p);
    std::copy(row.begin(), row.end(), out.row(i).begin());
  }
  return out;
}

// Yours is the reference's times one number. What is normalised forgets such a number: a norm would "explain" it.
bool is_a_multiple(const Case& operand) {
  LineFit fit;
  for (size_t i = 0; i < operand.r.v.size(); ++i) fit.add(operand.r.v[i], operand.c.v[i]);
  const double factor = fit.factor(1);
  std::vector<float> scaled = operand.r.v;
  for (float& value : scaled) value *= static_cast<float>(factor);
  return relative_error(operand.c.v, scaled) <= 2 * operand.tolerance;
}

// The operand is some other tensor that was recorded, as it is or normalised: a shortcut from elsewhere in the block.
Findings search_elsewhere(const Case& operand, const ChannelSearch& search, const Formula& r, size_t term) {
  Findings out;
  const std::string& wanted = search.label(r.terms[term].item);
  const auto add = [&](Cause cause, const std::string& words, std::string fix, double residual) {
    out.push_back(
        {.cause = cause, .explanation = words, .fix = std::move(fix), .residual = residual, .complexity = 0.4});
  };
  for (const auto& [label, values] : search.all_equal_sized()) {
    if (label == wanted || values.v == operand.r.v) continue;
    const double residual = relative_error(operand.c.v, values.v);
    if (residual > 2 * operand.tolerance) continue;
    const bool alone = r.terms.size() == 1;  // nothing is added here
    add(alone ? Cause("stage.replaced") : Cause("residual.other_input"), label + " in its place",
        fmt::format("{} {} here, not {}", alone ? "pass" : "add", wanted, label), residual);
    return out;
  }
  if (is_a_multiple(operand)) return out;  // a number alone: the affine rest says it better
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    const Values normal = normalised(operand.r, kind);
    if (const double residual = relative_error(operand.c.v, normal.v); residual <= 2 * operand.tolerance) {
      add("norm.added", fmt::format("its {}", kind_name(kind)), fmt::format("add {} as it is", wanted), residual);
      return out;
    }
    if (const double residual = relative_error(normalised(operand.c, kind).v, operand.r.v);
        residual <= 2 * operand.tolerance)
      add("norm.missing", "it before its norm", fmt::format("normalise what {} is", wanted), residual);
  }
  return out;
}

// A coefficient in a poorer format: yours differs by what that takes from the channels, and by nothing else.
bool search_coarse_coefficients(Case& failing, const ChannelSearch& search, const Formula& r, Findings& out) {
  double residual = 0;
  const double unchanged = search.residual(r, true);
  const Format format = first_fitting(half_formats(), [&](const NumberFormat& next) {
    const Format f = &next;
    for (const ChannelSearch::Coarse& coarse : {ChannelSearch::Coarse{f, nullptr, false},
                                                {f, f, false},
                                                {nullptr, f, false},
                                                {f, nullptr, true},
                                                {f, f, true}}) {
      residual = search.residual(r, true, coarse);
      if (failing.explains_candidate(residual) && failing.is_better(residual, unchanged)) return true;
    }
    return false;
  });
  if (!format) return false;
  out.push_back({.cause = format->cause,
                 .explanation = fmt::format("reference: {}; yours: the same with its coefficients in {}",
                                            search.words(r), format->name),
                 .fix = "do not cast the modulation on the way",
                 .residual_reference = r.residual,
                 .residual = residual});
  return true;
}

// One term at a time: what would it have to be for yours to come out? Then that tensor is explained like any other.
void search_operands(Case& failing, const ChannelSearch& search, const Formula& r, Findings& out) {
  if (search_coarse_coefficients(failing, search, r, out)) return;
  for (size_t term = 0; term < r.terms.size(); ++term) {
    auto [mine, right] = search.implied(r, term);
    if (right.rows() < 2) continue;
    Case operand = failing.with_pair(std::move(right), std::move(mine));
    const double share = rms(failing.c.v) / std::max(1e-30, rms(operand.r.v));
    operand.tolerance = std::clamp(failing.tolerance * std::max(10.0, 4 * share), failing.tolerance, 5e-3);
    operand.name = search.label(r.terms[term].item);
    Findings found = search_elsewhere(operand, search, r, term);
    if (found.empty()) found = explain_pair(operand);
    // A channel with a small coefficient blows its operand up until it drowns the others: shares of the error mean
    // nothing here, only what is left.
    std::erase_if(found, [&](const Finding& finding) { return finding.residual > 2 * operand.tolerance; });
    // Worked back, the values are not exactly those of the poorer format: the difference must vanish with it.
    double left = 0;
    const Format held = first_fitting(half_formats(), [&](const NumberFormat& next) {
      left = relative_error(operand.c.v, in_format(operand.r, &next).v);
      return operand.error < 0.01 && left < 0.25 * operand.error;
    });
    if (found.empty() && held)
      found.push_back({.cause = held->cause,
                       .explanation = fmt::format("rounded to {}", held->name),
                       .fix = "do not cast it on the way",
                       .residual = left});
    for (Finding& finding : found) {
      finding.explanation = fmt::format("reference: {}; yours: the same, but in it {}: {}", search.words(r),
                                        operand.name, finding.explanation);
      finding.complexity += 0.5;
      finding.residual = std::min(finding.residual, failing.tolerance);
      finding.blame = Blame::kNone;
      out.push_back(std::move(finding));
    }
    if (!found.empty()) return;
  }
}

}  // namespace

void search_channelwise(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || !std::isfinite(failing.error)) return;
  ChannelSearch search(failing);
  if (!search.possible()) return;
  const size_t before = out.size();
  const Formula r = search.best(false);
  const bool explained = !r.terms.empty() && failing.explains(r.residual);
  if (explained) {
    const double with_reference = search.residual(r, true);
    if (failing.note_local(with_reference)) return;
    const auto fits = [&](const Formula& c) {
      return !c.terms.empty() && failing.explains_candidate(c.residual) &&
             failing.is_better(c.residual, with_reference);
    };
    Formula c = search.best(true);
    if (!fits(c)) c = search.best_reading(r);
    if (fits(c)) {
      Finding finding = describe(failing, search, r, c);
      if (!failing.module.empty() && failing.role == Role::kInput)
        finding.look_at = parent_of(failing.module) + ", before " + failing.module;
      out.push_back(std::move(finding));
    }
  }
  if (failing.only_local || out.size() > before) return;
  search_from_reference(failing, search, out);
  if (explained && out.size() == before) search_operands(failing, search, r, out);
}

}  // namespace lockstep
