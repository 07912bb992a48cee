// combined = uncond + s (cond - uncond), then each token scaled back to the length of cond, or not.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "diagnose/sampler/guidance_mix.h"
#include "diagnose/search/edits.h"
#include "diagnose/search/fit.h"
#include "diagnose/search/number_formats.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

using namespace guidance;

double residual_of(const Params& p, const Mix& mix, const Values& y) {
  return squared_norm(y.v) > 0 ? relative_error(mix.prepared(p).result(p).v, y.v) : INFINITY;
}

// The factors that y has beside the combination, and what is left then.
std::vector<double> factors_of(const Values& y, const Values& own, const Mix& mix, Sharing span, double& residual) {
  std::vector<double> xy(mix.groups(span)), xx(xy.size()), out(xy.size());
  mix.each(span, [&](size_t g, size_t i) {
    xy[g] += static_cast<double>(own.v[i]) * y.v[i], xx[g] += static_cast<double>(own.v[i]) * own.v[i];
  });
  for (size_t g = 0; g < out.size(); ++g) out[g] = xx[g] > 0 ? xy[g] / xx[g] : 0;
  Residual unexplained;
  mix.each(span, [&](size_t g, size_t i) { unexplained.add(out[g] * own.v[i], y.v[i]); });
  residual = unexplained.relative();
  return out;
}

double misfit(const std::vector<double>& a, const std::vector<double>& b) {
  Residual apart;
  for (size_t g = 0; g < a.size(); ++g) apart.add(a[g], b[g]);
  return apart.relative();
}

// Which ratio of lengths the factors are.
bool name_factors(Params& p, const std::vector<double>& factors, const Mix& mix, const Values& own, double near) {
  const double most = *std::max_element(factors.begin(), factors.end()),
               least = *std::min_element(factors.begin(), factors.end());
  constexpr std::pair<Of, Of> kRatios[] = {{Of::kCond, Of::kOwn},    {Of::kUncond, Of::kOwn},  {Of::kOwn, Of::kCond},
                                           {Of::kCond, Of::kUncond}, {Of::kUncond, Of::kCond}, {Of::kOwn, Of::kUncond}};
  std::array<Lengths, 3> lengths;
  for (const Of which : {Of::kOwn, Of::kCond, Of::kUncond})
    lengths[static_cast<size_t>(which)] = mix.lengths(which, own, p.span);
  for (const double power : {1.0, 2.0, 0.5})
    for (const Length length : {Length::kRoot, Length::kDeviation, Length::kSum, Length::kLargest})
      for (const auto& [over, under] : kRatios) {
        Params q = p;
        q.length = length, q.over = over, q.under = under, q.power = power;
        const auto of = [&](Of which) -> const std::vector<double>& {
          return lengths[static_cast<size_t>(which)][static_cast<size_t>(length)];
        };
        std::vector<double> ratio = ratios(of(over), of(under));
        if (power != 1)
          for (double& value : ratio) value = std::pow(value, power);
        const auto matches = [&](auto&& change) {
          std::vector<double> changed = ratio;
          for (double& value : changed) value = change(value);
          return misfit(changed, factors) <= near;
        };
        if (matches([](double x) { return x; })) return p = q, true;
        // Held from above or below: several groups share the bound then.
        const auto at = [&](double bound) {
          return std::count_if(factors.begin(), factors.end(), [&](double f) { return std::fabs(f - bound) <= near; });
        };
        if (factors.size() > 3 && at(most) > 1 && matches([&](double x) { return std::min(x, most); }))
          return q.most = most, p = q, true;
        if (factors.size() > 3 && at(least) > 1 && matches([&](double x) { return std::max(x, least); }))
          return q.least = least, p = q, true;
        if (factors.size() > 3 && power == 1) {
          double both = 0, squares = 0;
          for (size_t g = 0; g < factors.size(); ++g) both += ratio[g] * factors[g], squares += ratio[g] * ratio[g];
          const double times = squares > 0 ? both / squares : 1;
          if (matches([&](double x) { return times * x; })) return q.times = times, p = q, true;
        }
        double top = 0, bottom = 0;  // factor - 1 = blend (ratio - 1)
        for (size_t g = 0; g < factors.size(); ++g)
          top += (ratio[g] - 1) * (factors[g] - 1), bottom += (ratio[g] - 1) * (ratio[g] - 1);
        const double blend = bottom > 0 ? std::round(top / bottom * 1000) / 1000 : 0;
        const bool sure = factors.size() > 3 || std::fabs(blend * 20 - std::round(blend * 20)) < 1e-6;
        if (sure && power == 1 && blend > 0.01 && blend < 1 && matches([&](double x) { return blend * x + 1 - blend; }))
          return q.blend = blend, p = q, true;
      }
  return false;
}

EditedForm<Params> fit(const Mix& mix, const Values& y, double tolerance) {
  EditedForm<Params> best;
  for (const Sharing span :
       {Sharing::kNone, Sharing::kWhole, Sharing::kItem, Sharing::kToken, Sharing::kChannel, Sharing::kPixel}) {
    if (!mix.has(span)) continue;
    Params p;
    p.span = span, p.s = mix.solve_scale(y, span);
    const double rounded = std::round(p.s * 1000) / 1000;
    if (std::fabs(rounded - p.s) < 2e-3) p.s = rounded;
    const Values own = mix.combined(p);
    if (span != Sharing::kNone) {
      double residual = INFINITY;
      std::vector<double> factors = factors_of(y, own, mix, span, residual);
      if (residual > 0.03 || factors.size() * 4 > y.v.size()) continue;
      if (!name_factors(p, factors, mix, own, std::max(1e-5, 3 * std::max(tolerance, residual))))
        p.known = false, p.factors = std::move(factors);
    }
    const double left = residual_of(p, mix, y);
    // A formula is worth more than numbers, and few numbers more than many.
    if (left < (p.known ? 0.5 : 0.1) * best.residual || (p.known && !best.form.known && left < 2 * best.residual))
      best = {std::move(p), left};
  }
  return best;
}

// A few tokens: is each some p cond + q uncond? If not, no factor of one of them makes y.
bool is_sum_in_each_token(const Mix& mix, const Values& y) {
  Residual apart;
  for (const int64_t i : sample_indices(y.rows(), 48)) {
    const std::span<const float> a = mix.cond().row(i), b = mix.uncond().row(i), t = y.row(i);
    const std::vector<double> k = least_squares({a, b}, t);
    for (size_t j = 0; j < t.size(); ++j) apart.add(k[0] * a[j] + k[1] * b[j], t[j]);
  }
  return apart.relative() <= 0.05;
}

std::string as_the_reference(const Params& r) {
  return "combine the two predictions as the reference does: " + formula(r);
}

// One of the predictions is multiplied before they are combined.
std::vector<Edit<Params>> fitting_edits(const std::string& fix, const Mix& mix) {
  std::vector<Edit<Params>> out;
  for (const Fitting fitting : {Fitting::kProjection, Fitting::kLength, Fitting::kDeviation})
    for (const Of fitted : {Of::kUncond, Of::kCond})
      for (const Sharing by : {Sharing::kWhole, Sharing::kItem, Sharing::kToken})
        if (mix.has(by))
          out.push_back({{"guidance.formula", fix},
                         [=](Params& p) { p.fitting = fitting, p.fitted = fitted, p.fitted_by = by; }});
  return out;
}

// A reference that multiplies one of them first: the scale and the rescaling are fitted then.
EditedForm<Params> fit_reference_form(const Mix& mix, const Values& y, double tolerance) {
  EditedForm<Params> best = fit(mix, y, tolerance);
  if ((best.form.known && best.residual <= tolerance) || !is_sum_in_each_token(mix, y)) return best;
  best = {};
  for (const Edit<Params>& edit : fitting_edits("", mix)) {
    Params multiplied;
    edit.apply(multiplied);
    Params p = fit(mix.prepared(multiplied), y, tolerance).form;
    edit.apply(p);
    if (const double left = residual_of(p, mix, y); p.known && left < 0.5 * best.residual) best = {p, left};
  }
  return best;
}

std::vector<Edit<Params>> format_edits() {
  std::vector<Edit<Params>> out;
  for (const NumberFormat& format : half_formats())
    for (const HeldIn held : {HeldIn::kInputs, HeldIn::kSteps, HeldIn::kResult})
      out.push_back({{format.cause, "combine the two predictions in f32"},
                     [&format, held](Params& p) { p.format = &format, p.held = held; }});
  return out;
}

// What was solved for, in terms of the reference's. Nothing: it is said more plainly elsewhere.
std::optional<EditName> name_of(const Params& r, const Params& c) {
  const bool same_scale = std::fabs(c.s - r.s) <= 1e-3 * std::fabs(r.s);
  const bool same_rescale = c.span == r.span && c.known && c.length == r.length && c.over == r.over &&
                            c.under == r.under && c.power == r.power && c.blend == r.blend && c.most == r.most &&
                            c.least == r.least;
  // All of the right result times one factor.
  const bool whole_factor = r.span == Sharing::kNone && c.span == Sharing::kWhole && !c.known;
  if (((same_rescale && c.times != r.times) || whole_factor) && same_scale) return std::nullopt;
  if (r.fitting != Fitting::kNone) return EditName{"guidance.formula", as_the_reference(r)};
  // Exchanged passes read as s' = 1 - s; with rescaling the length then follows the other pass.
  if (std::fabs(c.s - (1 - r.s)) < 1e-2) return EditName{"guidance.exchanged"};
  if (!same_scale) return EditName{"guidance.scale", fmt::format("use guidance {}, not {}", number(r.s), number(c.s))};
  return EditName{"guidance.rescale", r.span == Sharing::kNone
                                          ? "do not rescale the prediction"
                                          : "rescale the combined prediction as the reference does: " + formula(r)};
}

// y = p cond + q uncond, as it stands; or token by token.
std::string plain_words(const Values& a, const Values& b, const Values& y, bool by_token, double& residual) {
  Residual unexplained;
  std::vector<double> k;
  const auto part = [&](std::span<const float> x, std::span<const float> z, std::span<const float> t) {
    k = least_squares({x, z}, t);
    for (size_t i = 0; i < t.size(); ++i) unexplained.add(k[0] * x[i] + k[1] * z[i], t[i]);
  };
  if (by_token)
    for (int64_t i = 0; i < y.rows(); ++i) part(a.row(i), b.row(i), y.row(i));
  else
    part(a.v, b.v, y.v);
  residual = unexplained.relative();
  return by_token ? "each token p cond + q uncond with p and q of its own"
                  : fmt::format("{} cond + {} uncond", number(k[0]), number(k[1]));
}

// The predictions of both passes and what was made of them, on one side.
struct Side {
  Values cond, uncond, y;  // [rows, channels]
};

void judge(Case& failing, Findings& out, const Side& theirs, const Side& mine, int64_t batch,
           const std::string& where) {
  const Mix of_r(theirs.cond, theirs.uncond, batch), of_c(mine.cond, mine.uncond, batch);
  const Values& y = mine.y;
  const EditedForm<Params> r = fit_reference_form(of_r, theirs.y, failing.tolerance);
  if (!r.form.known || !failing.explains(r.residual)) return;
  const double with_reference = residual_of(r.form, of_c, y);
  if (failing.note_local(with_reference)) return;
  const Report report(formula(r.form), r.residual, out);
  const auto is_answer = [&](const EditedForm<Params>& c) {
    return failing.explains_candidate(c.residual) && failing.is_better(c.residual, with_reference);
  };
  const auto best_of = [&](const std::vector<Edit<Params>>& edits) {
    Budget budget(static_cast<int64_t>(edits.size()));
    EditSearch<Params> search(
        r.form, [&](const Params& p) { return residual_of(p, of_c, y); }, 1, budget);
    search.try_each(edits);
    return search.best();
  };
  const auto say = [&](const EditedForm<Params>& c, double complexity) {
    report.add(c.name(), formula(c.form) + where, c.residual, complexity);
  };
  // The whole formula of the other pass, its rescaling too.
  if (const auto c = best_of({{{"guidance.exchanged"}, [](Params& p) { p.exchanged = true; }}}); is_answer(c))
    return say(c, 0.6);
  EditedForm<Params> c = fit(of_c, y, failing.tolerance);
  // A scale that nobody would choose may be the reference's own, of a prediction that was multiplied first.
  if ((!c.form.known || std::fabs(c.form.s - r.form.s) > 1e-3 * std::fabs(r.form.s)) && is_sum_in_each_token(of_c, y))
    if (const auto other = best_of(fitting_edits(as_the_reference(r.form), of_c));
        is_answer(other) && (!c.form.known || other.residual < 1.5 * std::max(c.residual, 0.1 * failing.tolerance)))
      return say(other, 0.6);
  if (!is_answer(c) || !c.form.known)
    if (const auto poorer = best_of(format_edits()); is_answer(poorer)) return say(poorer, 0.9);
  if (is_answer(c)) {
    if (const auto name = name_of(r.form, c.form)) {
      c.names = {*name};
      say(c, c.form.known ? 0.7 : 1.1);
    }
    return;
  }
  for (const bool by_token : {false, true}) {
    double residual = INFINITY;
    const std::string words = plain_words(of_c.cond(), of_c.uncond(), y, by_token, residual);
    if ((by_token && y.last() < 16) || !failing.explains_candidate(residual) ||
        !failing.is_better(residual, with_reference))
      continue;
    report.add({"guidance.scale", "combine the two predictions as the reference does"}, words, residual,
               by_token ? 1.3 : 0.7);
    return;
  }
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
  for (const Item* item : {cond, uncond})
    if (failing.reference_of(*item).size() != failing.r.size() ||
        failing.candidate_of(*item).size() != failing.r.size())
      return;
  // All rows: some forms scale the whole.
  const auto rows = [](const Values& x) { return reshaped(x, {x.rows(), x.last()}); };
  const int64_t batch = failing.r.rank() > 2 ? failing.r.shape[0] : 1;
  const auto side = [&](bool mine, int64_t item) {  // of the whole batch where that is -1
    const auto part = [&](const Values& x) {
      return rows(item < 0 ? x : batch_item(reshaped(x, failing.r.shape), item, batch));
    };
    const auto of = [&](const Item* of_pass) -> const Values& {
      return mine ? failing.candidate_of(*of_pass) : failing.reference_of(*of_pass);
    };
    return Side{part(of(cond)), part(of(uncond)), part(mine ? failing.c : failing.r)};
  };
  // Where some items of a batch are right, the first wrong one is asked by itself.
  const size_t each = failing.r.v.size() / static_cast<size_t>(batch);
  int64_t wrong = -1, right = 0;
  for (int64_t at = 0; batch > 1 && at < batch; ++at) {
    const auto item = [&](const Values& x) { return std::span(x.v).subspan(static_cast<size_t>(at) * each, each); };
    if (relative_error(item(failing.c), item(failing.r)) <= failing.tolerance)
      ++right;
    else if (wrong < 0)
      wrong = at;
  }
  if (right > 0 && wrong >= 0)
    judge(failing, out, side(false, wrong), side(true, wrong), 1, fmt::format(" (item {} of the batch)", wrong));
  else
    judge(failing, out, side(false, -1), side(true, -1), batch, "");
}

}  // namespace lockstep
