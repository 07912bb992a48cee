// y = a[c] * x + g[c] * f + b[c]: modulation, gates, residuals. The coefficients are solved for, then recognised among
// the vectors that were recorded (parts of a modulation, weights); a formula counts only with recognised coefficients.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/families/fit.h"
#include "compare/small_solve.h"

namespace lockstep {
namespace {

enum class Form { kConstant, kVector, kOnePlus, kMinus, kTanh };

struct Coefficient {
  Form form = Form::kConstant;
  double constant = 0;
  int vector = -1;  // of the dictionary

  double at(const std::vector<NamedVector>& words, bool candidate, size_t channel) const {
    if (form == Form::kConstant) return constant;
    const double v = (candidate ? words[static_cast<size_t>(vector)].c : words[static_cast<size_t>(vector)].r)[channel];
    return form == Form::kVector ? v : form == Form::kOnePlus ? 1 + v : form == Form::kMinus ? -v : std::tanh(v);
  }
  bool is(double value) const { return form == Form::kConstant && constant == value; }
  friend bool operator==(const Coefficient&, const Coefficient&) = default;
};

struct Term {
  int item = -1;
  Coefficient coefficient;
};

struct Formula {
  std::vector<Term> terms;
  Coefficient offset;
  double residual = INFINITY;

  const Coefficient* of(int item) const {
    for (const Term& term : terms)
      if (term.item == item) return &term.coefficient;
    return nullptr;
  }
};

class Search {
 public:
  explicit Search(Case& failing) : failing_(failing), items_(equal_size_items(failing, 9)) {
    axis_ = channel_axis(failing.name, failing.r.shape);
    y_[0] = rows(failing.r), y_[1] = rows(failing.c);
    channels_ = y_[0].last();
    for (const Item* item : items_) {
      Values r = failing.reference_of(*item), c = failing.candidate_of(*item);
      r.shape = c.shape = failing.r.shape;
      x_[0].push_back(rows(r)), x_[1].push_back(rows(c));
    }
    words_ = vector_dictionary(failing, channels_);
  }

  bool possible() const { return !items_.empty() && channels_ >= 4 && y_[0].rows() >= 3; }

  Formula best(bool candidate) const {
    Formula found;
    const int count = static_cast<int>(items_.size());
    const auto keep = [&](const Formula& next) {
      // A longer formula must be better by far.
      if (next.residual < (next.terms.size() > found.terms.size() && !found.terms.empty() ? 0.3 : 1) * found.residual)
        found = next;
    };
    for (int i = 0; i < count; ++i) keep(fit({i}, candidate));
    if (failing_.explains(found.residual)) return found;
    for (int i = 0; i < count; ++i)
      for (int j = i + 1; j < count; ++j) keep(fit({i, j}, candidate));
    return found;
  }

  double residual(const Formula& formula, bool candidate) const {
    const Values& y = y_[candidate];
    double dd = 0, yy = 0;
    for (int64_t j = 0; j < channels_; ++j) {
      const size_t channel = static_cast<size_t>(j);
      std::vector<double> k;
      for (const Term& term : formula.terms) k.push_back(term.coefficient.at(words_, candidate, channel));
      const double b = formula.offset.at(words_, candidate, channel);
      for (int64_t i = 0; i < y.rows(); ++i) {
        const size_t at = static_cast<size_t>(i * channels_ + j);
        double value = b;
        for (size_t t = 0; t < k.size(); ++t)
          value += k[t] * x_[candidate][static_cast<size_t>(formula.terms[t].item)].v[at];
        const double d = value - y.v[at];
        dd += d * d, yy += static_cast<double>(y.v[at]) * y.v[at];
      }
    }
    return yy > 0 ? std::sqrt(dd / yy) : INFINITY;
  }

  std::string words(const Coefficient& k) const {
    if (k.form == Form::kConstant) return number(k.constant);
    const std::string& name = words_[static_cast<size_t>(k.vector)].name;
    return k.form == Form::kVector    ? name
           : k.form == Form::kOnePlus ? "(1 + " + name + ")"
           : k.form == Form::kMinus   ? "-" + name
                                      : "tanh(" + name + ")";
  }
  std::string label(int item) const { return items_[static_cast<size_t>(item)]->label(); }
  std::string words(const Formula& formula) const {
    std::string out;
    for (const Term& term : formula.terms) {
      if (!out.empty()) out += " + ";
      out += term.coefficient.is(1) ? label(term.item) : label(term.item) + " * " + words(term.coefficient);
    }
    if (!formula.offset.is(0)) out += " + " + words(formula.offset);
    return out.empty() ? "0" : out;
  }

 private:
  Values rows(const Values& x) const {
    // Modulations belong to one batch item: look at the first.
    Values first = x;
    if (x.rank() >= 3 && x.shape[0] > 1) {
      first.shape[0] = 1;
      first.v.resize(x.v.size() / static_cast<size_t>(x.shape[0]));
    }
    return sampled(channels_last(first, axis_));
  }

  Formula fit(const std::vector<int>& chosen, bool candidate) const {
    const size_t n = chosen.size() + 1;  // and the offset
    const Values& y = y_[candidate];
    Formula out;
    if (y.rows() < static_cast<int64_t>(n) + 1) return out;
    std::vector<std::vector<double>> k(n, std::vector<double>(static_cast<size_t>(channels_)));
    for (int64_t j = 0; j < channels_; ++j) {
      std::vector<double> gram(n * n), right(n), basis(n, 1);
      for (int64_t i = 0; i < y.rows(); ++i) {
        const size_t at = static_cast<size_t>(i * channels_ + j);
        for (size_t t = 0; t + 1 < n; ++t) basis[t] = x_[candidate][static_cast<size_t>(chosen[t])].v[at];
        for (size_t a = 0; a < n; ++a) {
          for (size_t b = 0; b < n; ++b) gram[a * n + b] += basis[a] * basis[b];
          right[a] += basis[a] * y.v[at];
        }
      }
      if (!solve_symmetric(gram, right, n)) return out;
      for (size_t t = 0; t < n; ++t) k[t][static_cast<size_t>(j)] = right[t];
    }
    double scale = 0;  // of the offset: small against the rest it is none
    for (const float value : y.v) scale += static_cast<double>(value) * value;
    scale = std::sqrt(scale / static_cast<double>(y.size()));
    for (size_t t = 0; t + 1 < n; ++t) {
      const auto known = recognise(k[t], candidate, 0.05);
      if (!known) return out;
      out.terms.push_back({chosen[t], *known});
    }
    const auto offset = recognise(k[n - 1], candidate, 0.02 * scale);
    if (!offset) return Formula{};
    out.offset = *offset;
    std::erase_if(out.terms, [](const Term& term) { return term.coefficient.is(0); });
    if (!out.terms.empty()) out.residual = residual(out, candidate);
    return out;
  }

  // The constant, or the named vector, that these coefficients are.
  std::optional<Coefficient> recognise(const std::vector<double>& k, bool candidate, double small) const {
    const double n = static_cast<double>(k.size());
    double sum = 0, squares = 0;
    for (const double value : k) sum += value, squares += value * value;
    const double mean = sum / n, spread = std::sqrt(std::max(0.0, squares / n - mean * mean));
    if (std::sqrt(squares / n) < small) return Coefficient{Form::kConstant, 0, -1};
    Coefficient best;
    double error = 0.08 * std::max(std::sqrt(squares / n), small);
    if (spread < 0.03 * std::fabs(mean)) {
      const double rounded = std::fabs(mean - std::round(mean)) < 0.03 ? std::round(mean) : mean;
      best = {Form::kConstant, rounded, -1};
      error = spread + 1e-9;
    } else {
      best.vector = -2;
    }
    for (size_t w = 0; w < words_.size(); ++w)
      for (const Form form : {Form::kVector, Form::kOnePlus, Form::kMinus, Form::kTanh}) {
        const Coefficient next{form, 0, static_cast<int>(w)};
        double dd = 0;
        for (size_t j = 0; j < k.size(); ++j) {
          const double d = next.at(words_, candidate, j) - k[j];
          dd += d * d;
        }
        if (std::sqrt(dd / n) < 0.8 * error) best = next, error = std::sqrt(dd / n);
      }
    if (best.vector == -2) return std::nullopt;
    return best;
  }

  Case& failing_;
  std::vector<const Item*> items_;
  int axis_ = 0;
  int64_t channels_ = 1;
  Values y_[2];
  std::vector<Values> x_[2];
  std::vector<NamedVector> words_;
};

bool is_vector(const Coefficient& k) {
  return k.form != Form::kConstant;
}

// The one difference that matters, in order of plainness.
Finding describe(const Search& search, const Formula& r, const Formula& c) {
  Finding out{"",          fmt::format("reference: {}; yours: {}", search.words(r), search.words(c)),
              "",          "",
              r.residual,  c.residual,
              0.8,         0,
              Blame::kNone};
  const std::string wanted = "compute " + search.words(r);
  const auto set = [&](const char* cause, std::string fix) { out.cause = cause, out.fix = std::move(fix); };
  for (const Term& term : r.terms) {  // something left out
    if (c.of(term.item)) continue;
    const bool replaced = c.terms.size() == r.terms.size();
    if (replaced)
      set("residual.other_input", fmt::format("add {} here, not another tensor", search.label(term.item)));
    else if (is_vector(term.coefficient))
      set("residual.branch_missing",
          fmt::format("add {} * {}", search.label(term.item), search.words(term.coefficient)));
    else
      set("residual.missing", fmt::format("add {} (the residual)", search.label(term.item)));
    return out;
  }
  for (const Term& term : c.terms)
    if (!r.of(term.item)) {
      set("residual.added", fmt::format("do not add {}", search.label(term.item)));
      return out;
    }
  for (const Term& term : r.terms) {
    const Coefficient &kr = term.coefficient, &kc = *c.of(term.item);
    if (kr == kc) continue;
    const bool alone = r.terms.size() == 1;
    if (is_vector(kr) && is_vector(kc) && kr.vector == c.offset.vector && kc.vector == r.offset.vector)
      set("modulate.shift_scale_exchanged", "exchange shift and scale: " + wanted);
    else if (is_vector(kr) && kr.vector == kc.vector && !alone &&
             (kr.form == Form::kMinus) != (kc.form == Form::kMinus) && kr.form != Form::kOnePlus)
      set("residual.sign", fmt::format("the sign of {} is wrong", search.label(term.item)));
    else if (is_vector(kr) && kr.vector == kc.vector)
      set(kr.form == Form::kOnePlus ? "modulate.one_plus_missing" : "modulate.form",
          "use " + search.words(kr) + " in place of " + search.words(kc));
    else if (is_vector(kr) && is_vector(kc))
      set(alone ? "modulate.other_part" : "gate.other_part", "take " + search.words(kr) + ", not " + search.words(kc));
    else if (is_vector(kr))
      set(alone ? "modulate.missing" : "gate.missing",
          fmt::format("multiply {} by {}", search.label(term.item), search.words(kr)));
    else if (is_vector(kc))
      set(alone ? "modulate.added" : "gate.added",
          fmt::format("do not multiply {} by {}", search.label(term.item), search.words(kc)));
    else if (kr.constant == -kc.constant)
      set("residual.sign", fmt::format("the sign of {} is wrong", search.label(term.item)));
    else
      set(alone ? "affine.scale" : "residual.factor",
          fmt::format("{} counts {} times, not {}", search.label(term.item), search.words(kr), search.words(kc)));
    return out;
  }
  if (is_vector(r.offset) && c.offset.is(0))
    set("modulate.shift_missing", "add " + search.words(r.offset));
  else if (is_vector(r.offset) && is_vector(c.offset))
    set("modulate.other_part", "add " + search.words(r.offset) + ", not " + search.words(c.offset));
  else
    set("modulate.shift", wanted);
  return out;
}

}  // namespace

void search_channelwise(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || !std::isfinite(failing.error)) return;
  const Search search(failing);
  if (!search.possible()) return;
  const Formula r = search.best(false);
  if (!failing.explains(r.residual)) return;
  if (failing.note_local(search.residual(r, true))) return;
  const Formula c = search.best(true);
  if (c.terms.empty() || !failing.explains_candidate(c.residual) ||
      !failing.is_better(c.residual, search.residual(r, true)))
    return;
  Finding finding = describe(search, r, c);
  if (!failing.module.empty() && failing.role == Role::kInput)
    finding.look_at = parent_of(failing.module) + ", before " + failing.module;
  out.push_back(std::move(finding));
}

}  // namespace lockstep
