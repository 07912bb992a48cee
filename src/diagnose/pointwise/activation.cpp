// y = act(x), or y = act(gate) * up.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "diagnose/case/thresholds.h"
#include "diagnose/pointwise/activation_curve.h"
#include "diagnose/search/fit.h"
#include "diagnose/search/functions.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

// With a second tensor: act(x) * up. The others are what it becomes when the two steps change places or one is doubled.
enum class Form { kProduct, kOfProduct, kOfSum, kBoth, kSum };

struct Choice {
  size_t act = 0;
  const Item* x = nullptr;
  const Item* up = nullptr;  // null: x alone
  double residual = INFINITY;
  Form form = Form::kProduct;
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

std::string formula(const Choice& choice) {
  const std::string act = element_functions()[choice.act].name;
  if (choice.up && choice.form != Form::kProduct) {
    const std::string x = choice.x->label(), up = choice.up->label();
    return choice.form == Form::kOfProduct ? fmt::format("{} with x = {} * {}", act, x, up)
           : choice.form == Form::kOfSum   ? fmt::format("{} with x = {} + {}", act, x, up)
           : choice.form == Form::kBoth    ? fmt::format("{} of {} times the same of {}", act, x, up)
                                           : fmt::format("{} + {} with x = {}", act, up, x);
  }
  return choice.up ? fmt::format("{} * {} with x = {}", act, choice.up->label(), choice.x->label())
                   : fmt::format("{} with x = {}", act, choice.x->label());
}

class Search {
 public:
  Search(Case& failing, std::vector<const Item*> items) : items_(std::move(items)) {
    stride_ = std::max<size_t>(1, failing.r.v.size() / 20000) | 1;  // odd: no column is left out
    thin(failing.r, y_r_), thin(failing.c, y_c_);
    for (const Item* item : items_) {
      thin(failing.reference_of(*item), x_r_.emplace_back());
      thin(failing.candidate_of(*item), x_c_.emplace_back());
    }
  }

  Choice best(bool candidate, bool product) const {
    const auto& x = candidate ? x_c_ : x_r_;
    const auto& y = candidate ? y_c_ : y_r_;
    Choice out;
    // A few values rule most of the many combinations out.
    const size_t few = std::min<size_t>(y.size(), 256);
    const auto some = [&](const std::vector<float>& values) { return std::span(values).first(few); };
    const auto hopeless = [&](double residual) { return residual > kHopelessFormula; };
    for (size_t a = 0; a < element_functions().size(); ++a)
      for (size_t i = 0; i < items_.size(); ++i) {
        if (!product) {
          if (hopeless(residual_of(element_functions()[a], some(x[i]), {}, some(y)))) continue;
          keep(out, {a, items_[i], nullptr, residual_of(element_functions()[a], x[i], {}, y)});
          continue;
        }
        for (size_t j = 0; j < items_.size(); ++j)
          if (i != j && !hopeless(residual_of(element_functions()[a], some(x[i]), some(x[j]), some(y))))
            keep(out, {a, items_[i], items_[j], residual_of(element_functions()[a], x[i], x[j], y)});
      }
    return out;
  }

  // The two in another order.
  Choice best_other_form() const {
    Choice out;
    const size_t few = std::min<size_t>(y_c_.size(), 256);
    const auto some = [&](const std::vector<float>& values) { return std::span(values).first(few); };
    for (size_t a = 0; a < element_functions().size(); ++a)
      for (size_t i = 0; i < items_.size(); ++i)
        for (size_t j = 0; j < items_.size(); ++j)
          for (const Form form : {Form::kOfProduct, Form::kOfSum, Form::kBoth, Form::kSum}) {
            if (i == j || (i > j && form != Form::kSum) || (a > 0 && !element_functions()[a].is_activation)) continue;
            if (a == 0 && form != Form::kOfProduct) continue;  // sums of recorded tensors are residuals
            if (residual_of(element_functions()[a], some(x_c_[i]), some(x_c_[j]), some(y_c_), form) > kHopelessFormula)
              continue;
            keep(out,
                 {a, items_[i], items_[j], residual_of(element_functions()[a], x_c_[i], x_c_[j], y_c_, form), form});
          }
    return out;
  }

  // y = f(x + before v) + after v with a vector over the last axis: the residual for the candidate.
  double with_vector(const Choice& choice, const std::vector<float>& v, double before, double after) const {
    size_t at = 0;
    for (size_t k = 0; k < items_.size(); ++k)
      if (items_[k] == choice.x) at = k;
    const ElementFunction& act = element_functions()[choice.act];
    Residual unexplained;
    for (size_t i = 0; i < y_c_.size(); ++i) {
      const double b = v[i * stride_ % v.size()];
      unexplained.add(act.f(x_c_[at][i] + before * b) + after * b, y_c_[i]);
    }
    return unexplained.relative();
  }

  // The candidate's own: what goes into the activation and what comes out of it, before it is multiplied.
  std::pair<std::vector<float>, std::vector<float>> in_and_out(const Choice& choice) const {
    const auto of = [&](const Item* item) -> const std::vector<float>& {
      return x_c_[static_cast<size_t>(std::find(items_.begin(), items_.end(), item) - items_.begin())];
    };
    if (!choice.up) return {of(choice.x), y_c_};
    std::pair<std::vector<float>, std::vector<float>> out;
    const std::vector<float>&x = of(choice.x), &up = of(choice.up);
    const double small = 0.2 * rms(up);  // a small factor tells little of what it was multiplied with
    for (size_t i = 0; i < y_c_.size(); ++i)
      if (std::fabs(up[i]) > small) out.first.push_back(x[i]), out.second.push_back(y_c_[i] / up[i]);
    return out;
  }

  double with(const Choice& choice) const {  // the candidate under the reference's parameters
    size_t i = 0, j = 0;
    for (size_t k = 0; k < items_.size(); ++k) {
      if (items_[k] == choice.x) i = k;
      if (items_[k] == choice.up) j = k;
    }
    return residual_of(element_functions()[choice.act], x_c_[i],
                       choice.up ? std::span<const float>(x_c_[j]) : std::span<const float>(), y_c_);
  }

 private:
  static void keep(Choice& best, const Choice& next) {
    if (next.residual < best.residual) best = next;
  }
  void thin(const Values& from, std::vector<float>& to) const {
    for (size_t i = 0; i < from.v.size(); i += stride_) to.push_back(from.v[i]);
  }
  std::vector<const Item*> items_;
  size_t stride_ = 1;
  std::vector<float> y_r_, y_c_;
  std::vector<std::vector<float>> x_r_, x_c_;
};

// A bias on the wrong side of the activation, left out, or added twice.
bool search_bias(Case& failing, const Search& search, const Choice& r, Findings& out) {
  if (channel_axis(failing.name, failing.r.shape) + 1 != static_cast<int>(failing.r.rank())) return false;
  struct Place {
    double before, after;
    Cause cause;
    const char *yours, *fix;
  };
  static const Place kPlaces[] = {
      {-1, 1, "activation.other_input", "the bias added after it", "add the bias first, then apply the activation"},
      {-1, 0, "linear.bias_missing", "the bias left out before it", "add the bias before the activation"},
      {1, 0, "linear.bias_doubled", "the bias added twice before it", "add the bias once"},
      {0, 1, "linear.bias_doubled", "the bias added once more after it", "add the bias before the activation alone"}};
  for (const NamedVector& vector : vector_dictionary(failing, failing.r.last()))
    for (const Place& place : kPlaces) {
      const double residual = search.with_vector(r, vector.c, place.before, place.after);
      if (!failing.explains_candidate(residual) || !failing.is_better(residual, search.with(r))) continue;
      out.push_back({.cause = place.cause,
                     .explanation = fmt::format("reference: {}; yours: the same with {} ({})", formula(r), place.yours,
                                                vector.name),
                     .fix = place.fix,
                     .residual_reference = r.residual,
                     .residual = residual});
      return true;
    }
  return false;
}

// What is fed to an activation is no tensor of the reference any more: act(gate * up) in place of act(gate) * up.
void search_other_form(Case& failing, const Search& search, const Choice& r, Findings& out) {
  const Choice c = search.best_other_form();
  if (!c.up || !failing.explains_candidate(c.residual) || !failing.is_better(c.residual, search.with(r))) return;
  Cause cause = c.form == Form::kOfProduct || c.form == Form::kOfSum ? Cause("activation.other_input")
                : c.form == Form::kBoth                              ? Cause("activation.added")
                : r.up                                               ? Cause("activation.product_missing")
                                                                     : Cause("residual.added");
  out.push_back({.cause = cause,
                 .explanation = fmt::format("reference: {}; yours: {}", formula(r), formula(c)),
                 .fix = "compute " + formula(r),
                 .residual_reference = r.residual,
                 .residual = c.residual,
                 .complexity = 0.9});
}

// Both are plain products of recorded tensors: is the operand that differs the other's activation?
Cause product_difference(Case& failing, const Choice& r, const Choice& c) {
  const auto other_than = [](const Choice& of, const Choice& in) {
    return of.x != in.x && of.x != in.up ? of.x : of.up;
  };
  const Values &wanted = failing.reference_of(*other_than(r, c)), &used = failing.reference_of(*other_than(c, r));
  const auto makes = [&](const Values& from, const Values& to) {
    return std::any_of(element_functions().begin() + 1, element_functions().end(), [&](const ElementFunction& f) {
      return f.is_activation && failing.explains(residual_of(f, from.v, {}, to.v));
    });
  };
  return makes(used, wanted)   ? Cause("activation.missing")
         : makes(wanted, used) ? Cause("activation.added")
                               : Cause("activation.other_input");
}

// Whatever function of the same input yours is, it is another one.
bool search_other_function(Case& failing, const Search& search, const Choice& r, Findings& out) {
  if (!element_functions()[r.act].is_activation || r.form != Form::kProduct || !std::isfinite(failing.error))
    return false;
  const double rounding = failing.tolerance / std::max(1e-12, search.with(r));
  const auto [x, y] = search.in_and_out(r);
  const double limit = std::max(2 * failing.tolerance, 0.02 * std::min(failing.error, 1.0));
  const auto curve =
      read_curve(element_functions()[r.act], x, y, limit, std::clamp(4 * rounding * rounding, kRoughCurve, kRoughest));
  if (!curve) return false;
  out.push_back({.cause = "activation.kind",
                 .explanation = fmt::format("reference: {}; yours: another function of the same input, {}", formula(r),
                                            curve->words),
                 .fix = fmt::format("use {}", element_functions()[r.act].name),
                 .residual_reference = r.residual,
                 .residual = std::max(curve->residual, failing.tolerance),
                 .complexity = curve->complexity});
  return true;
}

// The input of an activation, which the reference has from one tensor and yours from another: one beside it, before or
// after it in order.
bool search_fed(Case& failing, const Choice& r, Findings& out) {
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
    out.push_back(
        {.cause = multiplied ? Cause("activation.gate_up_exchanged") : Cause("activation.other_input"),
         .explanation = fmt::format("reference: the activation of {}; yours: that of {}", r.x->label(), label),
         .fix = fmt::format("apply the activation to {}, not to {}", r.x->label(), label),
         .residual_reference = r.residual,
         .residual = residual,
         .complexity = 0.3});
    return true;
  }
  return false;
}

}  // namespace

void search_activation(Case& failing, Findings& out) {
  const std::vector<const Item*> items = equal_size_items(failing, 8);
  // What went into it, where that was recorded: further off there may be a copy of the very result.
  std::vector<const Item*> nearest;
  for (const Item* item : items)
    if (item->relation == Relation::kOwnInput || item->relation == Relation::kChild) nearest.push_back(item);
  if (items.empty()) return;
  const Search of_all(failing, items), of_nearest(failing, nearest);
  for (const bool product : {false, true}) {
    if (product && items.size() < 2) return;
    const Search& search = product || nearest.empty() ? of_all : of_nearest;
    const Choice r = search.best(false, product);
    if (!failing.explains(r.residual)) continue;
    if (failing.note_local(search.with(r))) return;
    if (!product && r.act == 0 && search_fed(failing, r, out)) return;
    Choice c = search.best(true, product);
    if (product) {
      const Choice single = search.best(true, false);
      if (single.residual < 0.3 * c.residual) c = single;
    }
    if (!failing.explains_candidate(c.residual) || !failing.is_better(c.residual, search.with(r))) {
      const size_t before = out.size();
      if (failing.only_local || (r.act && !product && search_bias(failing, search, r, out))) return;
      if (items.size() > 1) search_other_form(failing, of_all, r, out);
      if (out.size() > before || search_other_function(failing, search, r, out)) return;
      continue;
    }
    if (r.act == 0 && c.act == 0 && !product) continue;  // two copies: not an activation at all
    Finding finding{.cause = "activation.kind",
                    .explanation = fmt::format("reference: {}; yours: {}", formula(r), formula(c)),
                    .residual_reference = r.residual,
                    .residual = c.residual,
                    .complexity = 0.8};
    if (product && c.x == r.up && c.up == r.x) {
      finding.cause = "activation.gate_up_exchanged";
      finding.fix = fmt::format("apply the activation to {}, not to {}", r.x->label(), r.up->label());
    } else if (product && !c.up) {
      finding.cause = "activation.product_missing";
      finding.fix = fmt::format("multiply by {}", r.up->label());
    } else if (product && c.up && r.act == 0 && c.act == 0) {
      finding.cause = product_difference(failing, r, c);
      finding.fix = "multiply as the reference does: " + formula(r);
    } else if (c.act == 0) {
      finding.cause = "activation.missing";
      finding.fix = fmt::format("apply {}", element_functions()[r.act].name);
    } else if (r.act == 0) {
      finding.cause = "activation.added";
      finding.fix = fmt::format("remove {}", element_functions()[c.act].name);
    } else if (c.act != r.act) {
      finding.fix =
          fmt::format("use {} in place of {}", element_functions()[r.act].name, element_functions()[c.act].name);
    } else {
      finding.cause = "activation.other_input";
      finding.fix = fmt::format("feed it {}", r.x->label());
    }
    out.push_back(std::move(finding));
    return;
  }
}

bool confirm_activation(Case& failing) {
  const std::vector<const Item*> items = equal_size_items(failing, 3);
  if (items.empty()) return false;
  const Search search(failing, items);
  const Choice r = search.best(false, false);
  return r.act != 0 && failing.explains(r.residual) && failing.explains(search.with(r));
}

}  // namespace lockstep
