// y = act(x), or y = act(gate) * up.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "diagnose/case/thresholds.h"
#include "diagnose/pointwise/activation_curve.h"
#include "diagnose/search/edits.h"
#include "diagnose/search/fit.h"
#include "diagnose/search/functions.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr int64_t kMostActivations = 20000;  // forms

// With a second tensor: act(x) * up. The others are what it becomes when the two steps change places or one is doubled.
enum class Form { kProduct, kOfProduct, kOfSum, kBoth, kSum };

struct Activated {
  size_t act = 0;
  const Item* x = nullptr;
  const Item* up = nullptr;  // null: x alone
  Form form = Form::kProduct;

  const ElementFunction& function() const { return element_functions()[act]; }
  friend bool operator==(const Activated&, const Activated&) = default;
};

double value_of(const ElementFunction& act, Form form, double x, double up) {
  switch (form) {
    case Form::kOfProduct:
      return act.f(x * up);
    case Form::kOfSum:
      return act.f(x + up);
    case Form::kBoth:
      return act.f(x) * act.f(up);
    case Form::kSum:
      return act.f(x) + up;
    case Form::kProduct:
      break;
  }
  return act.f(x) * up;
}

double residual_of(const ElementFunction& act, std::span<const float> x, std::span<const float> up,
                   std::span<const float> y, Form form = Form::kProduct) {
  Residual unexplained;
  for (size_t i = 0; i < y.size(); ++i) {
    unexplained.add(value_of(act, form, x[i], up.empty() ? 1.0 : up[i]), y[i]);
  }
  return unexplained.relative();
}

std::string formula(const Activated& p) {
  const std::string act = p.function().name, x = p.x->label();
  if (!p.up) return fmt::format("{} with x = {}", act, x);
  const std::string up = p.up->label();
  return p.form == Form::kOfProduct ? fmt::format("{} with x = {} * {}", act, x, up)
         : p.form == Form::kOfSum   ? fmt::format("{} with x = {} + {}", act, x, up)
         : p.form == Form::kBoth    ? fmt::format("{} of {} times the same of {}", act, x, up)
         : p.form == Form::kSum     ? fmt::format("{} + {} with x = {}", act, up, x)
                                    : fmt::format("{} * {} with x = {}", act, up, x);
}

using Items = std::vector<const Item*>;

// Some values of the pair and of what it may have been made from.
class ActivationProbe {
 public:
  ActivationProbe(Case& failing, const Items& items) : items_(items) {
    stride_ = std::max<size_t>(1, failing.r.v.size() / 20000) | 1;  // odd: no column is left out
    y_[0] = thinned(failing.r), y_[1] = thinned(failing.c);
    for (const Item* item : items_) {
      x_[0].push_back(thinned(failing.reference_of(*item)));
      x_[1].push_back(thinned(failing.candidate_of(*item)));
    }
  }

  double measure(bool candidate, const Activated& p) const {
    return residual_of(p.function(), values(candidate, p.x), p.up ? values(candidate, p.up) : std::span<const float>(),
                       y_[candidate], p.form);
  }
  // A few values rule most of the many combinations out.
  double measure_hopeful(bool candidate, const Activated& p) const {
    const auto few = [](std::span<const float> all) { return all.first(std::min<size_t>(256, all.size())); };
    const double glance =
        residual_of(p.function(), few(values(candidate, p.x)),
                    p.up ? few(values(candidate, p.up)) : std::span<const float>(), few(y_[candidate]), p.form);
    return glance > kHopelessFormula ? INFINITY : measure(candidate, p);
  }

  // y = f(x + before v) + after v with a vector over the last axis: the residual for the candidate.
  double with_vector(const Activated& p, const std::vector<float>& v, double before, double after) const {
    const std::span<const float> x = values(true, p.x);
    Residual unexplained;
    for (size_t i = 0; i < x.size(); ++i) {
      const double b = v[i * stride_ % v.size()];
      unexplained.add(p.function().f(x[i] + before * b) + after * b, y_[1][i]);
    }
    return unexplained.relative();
  }

  // The candidate's own: what goes into the activation and what comes out of it, before it is multiplied.
  std::pair<std::vector<float>, std::vector<float>> in_and_out(const Activated& p) const {
    const std::span<const float> x = values(true, p.x);
    std::pair<std::vector<float>, std::vector<float>> out;
    if (!p.up) return {{x.begin(), x.end()}, y_[1]};
    const std::span<const float> up = values(true, p.up);
    const double small = 0.2 * rms(up);  // a small factor tells little of what it was multiplied with
    for (size_t i = 0; i < x.size(); ++i)
      if (std::fabs(up[i]) > small) out.first.push_back(x[i]), out.second.push_back(y_[1][i] / up[i]);
    return out;
  }

  // In the reference: is one of them an activation of the other?
  bool makes(const Item* from, const Item* to, double tolerance) const {
    const std::span<const float> x = values(false, from), y = values(false, to);
    const size_t few = std::min<size_t>(256, y.size());
    return std::any_of(element_functions().begin() + 1, element_functions().end(), [&](const ElementFunction& f) {
      return f.is_activation && residual_of(f, x.first(few), {}, y.first(few)) <= kHopelessFormula &&
             residual_of(f, x, {}, y) <= tolerance;
    });
  }

 private:
  std::span<const float> values(bool candidate, const Item* item) const {
    return x_[candidate][static_cast<size_t>(std::find(items_.begin(), items_.end(), item) - items_.begin())];
  }
  std::vector<float> thinned(const Values& from) const {
    std::vector<float> out;
    for (size_t i = 0; i < from.v.size(); i += stride_) out.push_back(from.v[i]);
    return out;
  }
  Items items_;
  size_t stride_ = 1;
  std::vector<float> y_[2];  // the reference's, the candidate's
  std::vector<std::vector<float>> x_[2];
};

std::vector<Activated> activations(const Items& items, bool product) {
  std::vector<Activated> out;
  for (size_t act = 0; act < element_functions().size(); ++act)
    for (const Item* x : items) {
      if (!product) out.push_back({act, x});
      for (const Item* up : items)
        if (product && up != x) out.push_back({act, x, up});
    }
  return out;
}

// The two in another order: act(gate * up) in place of act(gate) * up.
std::vector<Activated> other_activations(const Items& items) {
  std::vector<Activated> out;
  for (size_t act = 0; act < element_functions().size(); ++act)
    for (size_t i = 0; i < items.size(); ++i)
      for (size_t j = 0; j < items.size(); ++j)
        for (const Form form : {Form::kOfProduct, Form::kOfSum, Form::kBoth, Form::kSum}) {
          if (i == j || (i > j && form != Form::kSum) || (act > 0 && !element_functions()[act].is_activation)) continue;
          if (act == 0 && form != Form::kOfProduct) continue;  // sums of recorded tensors are residuals
          out.push_back({act, items[i], items[j], form});
        }
  return out;
}

// Both are plain products of recorded tensors: is the operand that differs the other's activation?
Cause product_difference(const ActivationProbe& probe, const Activated& r, const Activated& c, double tolerance) {
  const auto other_than = [](const Activated& of, const Activated& in) {
    return of.x != in.x && of.x != in.up ? of.x : of.up;
  };
  const Item *wanted = other_than(r, c), *used = other_than(c, r);
  return probe.makes(used, wanted, tolerance)   ? Cause("activation.missing")
         : probe.makes(wanted, used, tolerance) ? Cause("activation.added")
                                                : Cause("activation.other_input");
}

EditName name_of(const ActivationProbe& probe, const Activated& r, const Activated& c, double tolerance) {
  if (c.form != Form::kProduct)
    return {c.form == Form::kBoth  ? Cause("activation.added")
            : c.form != Form::kSum ? Cause("activation.other_input")
            : r.up                 ? Cause("activation.product_missing")
                                   : Cause("residual.added"),
            "compute " + formula(r)};
  if (r.up && c.x == r.up && c.up == r.x)
    return {"activation.gate_up_exchanged",
            fmt::format("apply the activation to {}, not to {}", r.x->label(), r.up->label())};
  if (r.up && !c.up) return {"activation.product_missing", "multiply by " + r.up->label()};
  if (c.up && r.act == 0 && c.act == 0)
    return {product_difference(probe, r, c, tolerance), "multiply as the reference does: " + formula(r)};
  if (c.act == 0) return {"activation.missing", fmt::format("apply {}", r.function().name)};
  if (r.act == 0) return {"activation.added", fmt::format("remove {}", c.function().name)};
  if (c.act != r.act)
    return {"activation.kind", fmt::format("use {} in place of {}", r.function().name, c.function().name)};
  return {"activation.other_input", "feed it " + r.x->label()};
}

// A bias on the wrong side of the activation, left out, or added twice.
bool search_bias(Case& failing, const ActivationProbe& probe, const Activated& r, const Report& report) {
  if (channel_axis(failing.name, failing.r.shape) + 1 != static_cast<int>(failing.r.rank())) return false;
  struct Place {
    double before, after;
    EditName name;
    const char* yours;
  };
  static const Place kPlaces[] = {
      {-1, 1, {"activation.other_input", "add the bias first, then apply the activation"}, "the bias added after it"},
      {-1, 0, {"linear.bias_missing", "add the bias before the activation"}, "the bias left out before it"},
      {1, 0, {"linear.bias_doubled", "add the bias once"}, "the bias added twice before it"},
      {0, 1, {"linear.bias_doubled", "add the bias before the activation alone"}, "the bias added once more after it"}};
  const double with_reference = probe.measure(true, r);
  for (const NamedVector& vector : vector_dictionary(failing, failing.r.last()))
    for (const Place& place : kPlaces) {
      const double residual = probe.with_vector(r, vector.c, place.before, place.after);
      if (failing.explains_candidate(residual) && failing.is_better(residual, with_reference))
        return report.add(place.name, fmt::format("the same with {} ({})", place.yours, vector.name), residual);
    }
  return false;
}

// Whatever function of the same input yours is, it is another one.
bool search_other_function(Case& failing, const ActivationProbe& probe, const Activated& r, const Report& report) {
  if (!r.function().is_activation || !std::isfinite(failing.error)) return false;
  const double rounding = failing.tolerance / std::max(1e-12, probe.measure(true, r));
  const auto [x, y] = probe.in_and_out(r);
  const double limit = std::max(2 * failing.tolerance, 0.02 * std::min(failing.error, 1.0));
  const auto curve = read_curve(r.function(), x, y, limit, std::clamp(4 * rounding * rounding, kRoughCurve, kRoughest));
  return curve && report.add({"activation.kind", fmt::format("use {}", r.function().name)},
                             "another function of the same input, " + curve->words,
                             std::max(curve->residual, failing.tolerance), curve->complexity);
}

// The input of an activation, which the reference has from one tensor and yours from another: one beside it, before or
// after it in order.
bool search_fed(Case& failing, const Activated& r, const Report& report) {
  if (failing.role != Role::kInput || failing.only_local) return false;
  constexpr size_t kNear = 12;
  const RunView& run = failing.reference_run();
  const size_t own = failing.reference_record(), end = std::min(own + kNear, run.records.size());
  const auto values = [&](size_t i) -> const Values* {
    const RecordedTensor& record = run.records[i];
    return record.load && checked_numel(record.shape) == failing.r.size() ? &failing.load_reference(i) : nullptr;
  };
  size_t made = own + 1;  // by the activation
  while (made < end && (run.records[made].key.name != failing.module || run.records[made].role != Role::kOutput))
    ++made;
  const Values* const result = made < end ? values(made) : nullptr;
  const auto functions = element_functions().subspan(1);
  const auto makes_it = [&](const ElementFunction& function) {
    Values z = failing.r;
    for (float& value : z.v) value = static_cast<float>(function.f(value));
    return function.is_activation && failing.explains(relative_error(z.v, result->v));
  };
  if (!result || std::none_of(functions.begin(), functions.end(), makes_it)) return false;
  for (size_t i = own > kNear ? own - kNear : 0; i < end; ++i) {
    const Values* const given = i == own || run.records[i].role != Role::kOutput ? nullptr : values(i);
    const double residual = given ? relative_error(failing.c.v, given->v) : INFINITY;
    if (!failing.explains_candidate(residual)) continue;
    Values product = *result;
    for (size_t k = 0; k < product.v.size(); ++k) product.v[k] *= given->v[k];
    bool multiplied = false;  // in the reference: then the two have changed places
    for (size_t k = made + 1; k < end; ++k)
      if (const Values* const later = values(k))
        multiplied = multiplied || failing.explains(relative_error(product.v, later->v));
    const std::string label = to_string(run.records[i].key);
    return report.add({multiplied ? Cause("activation.gate_up_exchanged") : Cause("activation.other_input"),
                       fmt::format("apply the activation to {}, not to {}", r.x->label(), label)},
                      "that of " + label, residual, 0.3);
  }
  return false;
}

}  // namespace

void search_activation(Case& failing, Findings& out) {
  const Items items = equal_size_items(failing, 8);
  // What went into it, where that was recorded: further off there may be a copy of the very result.
  Items nearest;
  for (const Item* item : items)
    if (item->relation == Relation::kOwnInput || item->relation == Relation::kChild) nearest.push_back(item);
  if (items.empty()) return;
  const ActivationProbe probe(failing, items);
  const auto measure_r = [&](const Activated& p) { return probe.measure_hopeful(false, p); };
  const auto measure_c = [&](const Activated& p) { return probe.measure_hopeful(true, p); };
  for (const bool product : {false, true}) {
    if (product && items.size() < 2) return;
    const std::vector<Activated> forms = activations(product || nearest.empty() ? items : nearest, product);
    const auto r = fit_reference(forms, measure_r, 0);
    if (!failing.explains(r.residual)) continue;
    const double with_reference = probe.measure(true, r.form);
    if (failing.note_local(with_reference)) return;
    const Report report(formula(r.form), r.residual, out);
    if (!product && r.form.act == 0 &&
        search_fed(failing, r.form, Report("the activation of " + r.form.x->label(), r.residual, out)))
      return;
    Budget budget(kMostActivations);
    EditSearch<Activated> search(r.form, measure_c, 1, budget);
    const auto try_each = [&](const std::vector<Activated>& others) {
      std::vector<Edit<Activated>> edits;
      for (const Activated& other : others)
        if (!(other == r.form))
          edits.push_back({name_of(probe, r.form, other, failing.tolerance), [=](Activated& p) { p = other; }});
      search.try_each(edits);
      return failing.explains_candidate(search.best().residual) &&
             failing.is_better(search.best().residual, with_reference);
    };
    const auto say = [&] {
      const EditedForm<Activated>& c = search.best();
      return report.add(c.name(), formula(c.form), c.residual, c.form.form == Form::kProduct ? 0.8 : 0.9);
    };
    bool found = try_each(forms);
    if (product) found = try_each(activations(items, false)) || found;
    if (found && r.form.act == 0 && search.best().form.act == 0 && !product) continue;  // two copies: no activation
    if (found) {
      say();
      return;
    }
    if (r.form.act && !product && search_bias(failing, probe, r.form, report)) return;
    if (items.size() > 1 && try_each(other_activations(items))) {
      say();
      return;
    }
    if (search_other_function(failing, probe, r.form, report)) return;
  }
}

bool confirm_activation(Case& failing) {
  const Items items = equal_size_items(failing, 3);
  if (items.empty()) return false;
  const ActivationProbe probe(failing, items);
  const auto r = fit_reference(
      activations(items, false), [&](const Activated& p) { return probe.measure_hopeful(false, p); }, 0);
  return r.form.act != 0 && failing.explains(r.residual) && failing.explains(probe.measure(true, r.form));
}

}  // namespace lockstep
