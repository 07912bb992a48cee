// y = act(x), or y = act(gate) * up.
#include <fmt/format.h>

#include <cmath>

#include "compare/families/fit.h"

namespace lockstep {
namespace {

struct Activation {
  const char* name;
  double (*f)(double);
};

const Activation kActivations[] = {
    {"x", [](double x) { return x; }},
    {"SiLU(x)", [](double x) { return x * sigmoid(x); }},
    {"GELU(x), tanh form",
     [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
    {"GELU(x), erf form", [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
    {"quick GELU(x)", [](double x) { return x * sigmoid(1.702 * x); }},
    {"ReLU(x)", [](double x) { return x > 0 ? x : 0; }},
    {"ReLU(x)^2", [](double x) { return x > 0 ? x * x : 0; }},
    {"sigmoid(x)", [](double x) { return sigmoid(x); }},
    {"tanh(x)", [](double x) { return std::tanh(x); }},
    {"ELU(x)", [](double x) { return x > 0 ? x : std::expm1(x); }},
    {"leaky ReLU(x)", [](double x) { return x > 0 ? x : 0.01 * x; }},
    {"softplus(x)", [](double x) { return x > 30 ? x : std::log1p(std::exp(x)); }},
    {"SiLU(SiLU(x))",
     [](double x) {
       const double y = x * sigmoid(x);
       return y * sigmoid(y);
     }},
};

constexpr double kHopeless = 0.3;  // on a few values: no formula that explains a tensor is so far off anywhere

struct Choice {
  size_t act = 0;
  const Item* x = nullptr;
  const Item* up = nullptr;  // null: no product
  double residual = INFINITY;
};

double residual_of(const Activation& act, std::span<const float> x, std::span<const float> up,
                   std::span<const float> y) {
  double dd = 0, yy = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double d = act.f(x[i]) * (up.empty() ? 1.0 : up[i]) - y[i];
    dd += d * d, yy += static_cast<double>(y[i]) * y[i];
  }
  return yy > 0 ? std::sqrt(dd / yy) : INFINITY;
}

std::string formula(const Choice& choice) {
  const std::string act = kActivations[choice.act].name;
  return choice.up ? fmt::format("{} * {} with x = {}", act, choice.up->label(), choice.x->label())
                   : fmt::format("{} with x = {}", act, choice.x->label());
}

class Search {
 public:
  Search(Case& failing, const std::vector<const Item*>& items) : items_(items) {
    stride_ = std::max<size_t>(1, failing.r.v.size() / 20000) | 1;  // odd: no column is left out
    thin(failing.r, y_r_), thin(failing.c, y_c_);
    for (const Item* item : items) {
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
    const auto hopeless = [&](double residual) { return residual > kHopeless; };
    for (size_t a = 0; a < std::size(kActivations); ++a)
      for (size_t i = 0; i < items_.size(); ++i) {
        if (!product) {
          if (hopeless(residual_of(kActivations[a], some(x[i]), {}, some(y)))) continue;
          keep(out, {a, items_[i], nullptr, residual_of(kActivations[a], x[i], {}, y)});
          continue;
        }
        for (size_t j = 0; j < items_.size(); ++j)
          if (i != j && !hopeless(residual_of(kActivations[a], some(x[i]), some(x[j]), some(y))))
            keep(out, {a, items_[i], items_[j], residual_of(kActivations[a], x[i], x[j], y)});
      }
    return out;
  }

  double with(const Choice& choice) const {  // the candidate under the reference's parameters
    size_t i = 0, j = 0;
    for (size_t k = 0; k < items_.size(); ++k) {
      if (items_[k] == choice.x) i = k;
      if (items_[k] == choice.up) j = k;
    }
    return residual_of(kActivations[choice.act], x_c_[i],
                       choice.up ? std::span<const float>(x_c_[j]) : std::span<const float>(), y_c_);
  }

 private:
  static void keep(Choice& best, const Choice& next) {
    if (next.residual < best.residual) best = next;
  }
  void thin(const Values& from, std::vector<float>& to) const {
    for (size_t i = 0; i < from.v.size(); i += stride_) to.push_back(from.v[i]);
  }
  const std::vector<const Item*>& items_;
  size_t stride_ = 1;
  std::vector<float> y_r_, y_c_;
  std::vector<std::vector<float>> x_r_, x_c_;
};

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
    Choice c = search.best(true, product);
    if (product) {
      const Choice single = search.best(true, false);
      if (single.residual < 0.3 * c.residual) c = single;
    }
    if (!failing.explains_candidate(c.residual) || !failing.is_better(c.residual, search.with(r))) continue;
    if (r.act == 0 && c.act == 0 && !product) continue;  // two copies: not an activation at all
    Finding finding{"activation.kind",
                    fmt::format("reference: {}; yours: {}", formula(r), formula(c)),
                    "",
                    "",
                    r.residual,
                    c.residual,
                    0.8,
                    0,
                    Blame::kNone};
    if (product && c.x == r.up && c.up == r.x) {
      finding.cause = "activation.gate_up_exchanged";
      finding.fix = fmt::format("apply the activation to {}, not to {}", r.x->label(), r.up->label());
    } else if (product && !c.up) {
      finding.cause = "activation.product_missing";
      finding.fix = fmt::format("multiply by {}", r.up->label());
    } else if (c.act == 0) {
      finding.cause = "activation.missing";
      finding.fix = fmt::format("apply {}", kActivations[r.act].name);
    } else if (r.act == 0) {
      finding.cause = "activation.added";
      finding.fix = fmt::format("remove {}", kActivations[c.act].name);
    } else if (c.act != r.act) {
      finding.fix = fmt::format("use {} in place of {}", kActivations[r.act].name, kActivations[c.act].name);
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
