// y = norm(x) * weight + bias: kind, eps, axis, how the weight is used.
#include <fmt/format.h>

#include <cmath>

#include "compare/families/fit.h"

namespace lockstep {
namespace {

enum class Kind { kRms, kLayer, kNone, kUnit };  // kUnit: divided by the length, without sqrt(channels)
enum class WeightUse { kNone, kPlain, kOnePlus };
enum class Span { kChannels, kHeads, kTokens };

struct Params {
  Kind kind = Kind::kRms;
  double eps = 1e-6;
  Span span = Span::kChannels;
  WeightUse use = WeightUse::kNone;
  std::string weight;  // of another module, when not its own
  double residual = INFINITY;
  bool twice = false;
};

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kRms:
      return "RMSNorm";
    case Kind::kLayer:
      return "LayerNorm";
    case Kind::kUnit:
      return "x / ||x||";
    case Kind::kNone:
      break;
  }
  return "x";
}

const char* span_name(Span span) {
  return span == Span::kChannels ? "" : span == Span::kHeads ? " over all heads together" : " over the tokens";
}

std::string formula(const Params& p) {
  std::string out = kind_name(p.kind);
  if (p.kind == Kind::kRms || p.kind == Kind::kLayer) out += fmt::format("(x, eps {:g}){}", p.eps, span_name(p.span));
  const std::string weight = p.weight.empty() ? "weight" : p.weight;
  if (p.use == WeightUse::kPlain) out += " * " + weight;
  if (p.use == WeightUse::kOnePlus) out += " * (1 + " + weight + ")";
  if (p.twice) out += ", and the same once more on the result";
  return out;
}

// Rows to normalise over, and where each row's weights start: [rows, channels] for channels; heads joined; tokens as
// rows.
struct Prepared {
  Values x, y;  // [rows, channels]
  Shape heads;  // trailing [heads, channels] when there are heads
};

void normalise(std::span<const float> x, Kind kind, double eps, std::vector<double>& out) {
  double sum = 0, squares = 0;
  for (const float value : x) sum += value;
  const double n = static_cast<double>(x.size()), mean = kind == Kind::kLayer ? sum / n : 0;
  for (const float value : x) squares += (value - mean) * (value - mean);
  double factor = 1;
  if (kind == Kind::kRms || kind == Kind::kLayer) factor = 1 / std::sqrt(squares / n + eps);
  if (kind == Kind::kUnit) factor = 1 / std::sqrt(std::max(squares, 1e-24));
  out.resize(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = (x[i] - mean) * factor;
}

double residual_of(const Values& x, const Values& y, int64_t group, const Params& p, const std::vector<float>* weight,
                   const std::vector<float>* bias) {
  // Rows are `group` times the channels long when heads are joined.
  const int64_t channels = x.last();
  double dd = 0, yy = 0;
  std::vector<double> normal;
  std::vector<float> again;
  for (int64_t i = 0; i + group <= x.rows(); i += group) {
    const std::span<const float> row(x.v.data() + i * channels, static_cast<size_t>(group * channels));
    normalise(row, p.kind, p.eps, normal);
    if (p.twice) {
      again.resize(normal.size());
      for (size_t j = 0; j < normal.size(); ++j) {
        const size_t channel = j % static_cast<size_t>(channels);
        const double w = !weight || p.use == WeightUse::kNone ? 1 : (*weight)[channel];
        again[j] = static_cast<float>(normal[j] * (p.use == WeightUse::kOnePlus ? 1 + w : w));
      }
      normalise(again, p.kind, p.eps, normal);
    }
    for (size_t j = 0; j < normal.size(); ++j) {
      const size_t channel = j % static_cast<size_t>(channels);
      double value = normal[j];
      if (weight && p.use == WeightUse::kPlain) value *= (*weight)[channel];
      if (weight && p.use == WeightUse::kOnePlus) value *= 1 + (*weight)[channel];
      if (bias) value += (*bias)[channel];
      const double target = y.v[static_cast<size_t>(i * channels) + j];
      dd += (value - target) * (value - target), yy += target * target;
    }
  }
  return yy > 0 ? std::sqrt(dd / yy) : INFINITY;
}

class Search {
 public:
  Search(Case& failing, const Item& input) : failing_(failing) {
    const int axis = channel_axis(failing.name, failing.r.shape);
    channels_ = failing.r.dim(axis);
    heads_ = failing.r.rank() == 4 && axis == 3 ? failing.r.dim(2) : 1;
    const int64_t most = kFitRows / heads_ * heads_ + heads_;
    Values x_r = failing.reference_of(input), x_c = failing.candidate_of(input);
    x_r.shape = x_c.shape = failing.r.shape;
    const auto rows = [&](const Values& values) {
      const Values all = channels_last(values, axis);
      return heads_ > 1 ? take_rows(all, head_rows(all.rows(), most)) : sampled(all, most);
    };
    r_ = {rows(x_r), rows(failing.r), {}}, c_ = {rows(x_c), rows(failing.c), {}};
    for (const char* leaf : {".weight", ".gamma", ".scale"})
      if (!weight_r_)
        weight_r_ = vector_of(failing.weight_r(failing.module + leaf)),
        weight_c_ = vector_of(failing.weight_c(failing.module + leaf));
    bias_r_ = vector_of(failing.weight_r(failing.module + ".bias")),
    bias_c_ = vector_of(failing.weight_c(failing.module + ".bias"));
    if (!weight_r_) infer_weight();
  }

  Params best(bool candidate) const {
    Params out;
    const Prepared& side = candidate ? c_ : r_;
    for (const Kind kind : {Kind::kRms, Kind::kLayer, Kind::kUnit, Kind::kNone})
      for (const double eps : {1e-6, 1e-5, 1e-8, 1e-12, 1e-3, 1e-2, 1e-4, 0.0}) {
        if ((kind == Kind::kNone || kind == Kind::kUnit) && eps != 1e-6) continue;
        for (const Span span : {Span::kChannels, Span::kHeads}) {
          if (span == Span::kHeads && (heads_ < 2 || kind == Kind::kNone)) continue;
          for (const WeightUse use : {WeightUse::kNone, WeightUse::kPlain, WeightUse::kOnePlus}) {
            if (use != WeightUse::kNone && !weight_r_) continue;
            Params p{kind, eps, span, use, "", INFINITY};
            p.residual = measure(side, p, candidate);
            if (p.residual < 0.97 * out.residual) out = p;  // a better eps must be better by more than rounding
          }
        }
      }
    return candidate ? unusual(out) : out;
  }

  double measure(bool candidate, const Params& p) const { return measure(candidate ? c_ : r_, p, candidate); }

  // An eps that nobody would think of, or the norm of the norm.
  Params unusual(const Params& usual) const {
    Params out = usual;
    for (const Kind kind : {Kind::kRms, Kind::kLayer})
      for (const WeightUse use : {WeightUse::kNone, WeightUse::kPlain}) {
        if (use != WeightUse::kNone && !weight_r_) continue;
        Params p{kind, 1e-6, Span::kChannels, use, "", INFINITY, true};
        p.residual = measure(c_, p, true);
        if (p.residual < 0.3 * out.residual) out = p;
        p.twice = false;
        for (double eps = 1e-9; eps < 20; eps *= 1.25) {
          p.eps = eps, p.residual = measure(c_, p, true);
          if (p.residual < 0.3 * usual.residual && p.residual < out.residual) out = p;
        }
      }
    if (out.twice || out.eps == usual.eps) return out;
    for (double step = 1.1; step > 1.0005; step = std::sqrt(step))
      for (const double eps : {out.eps * step, out.eps / step}) {
        Params p = out;
        p.eps = eps, p.residual = measure(c_, p, true);
        if (p.residual < out.residual) out = p;
      }
    const double magnitude = std::pow(10, std::floor(std::log10(out.eps)) - 1);
    Params rounded = out;
    rounded.eps = std::round(out.eps / magnitude) * magnitude, rounded.residual = measure(c_, rounded, true);
    return rounded.residual < 1.5 * out.residual || failing_.explains(rounded.residual) ? rounded : out;
  }

  // The weight of another norm in the candidate's place.
  Params other_weight(const Params& r) const {
    Params out = r;
    out.residual = INFINITY;
    if (!failing_.weights_r) return out;
    for (const auto& [name, shape] : failing_.weights_r->shapes()) {
      if (checked_numel(shape) != channels_ || name.starts_with(failing_.module + ".")) continue;
      const auto weight = vector_of(failing_.weight_r(name));
      if (!weight) continue;
      Params p = r;
      if (p.use == WeightUse::kNone) continue;
      p.weight = name;
      p.residual =
          residual_of(c_.x, c_.y, p.span == Span::kHeads ? heads_ : 1, p, &*weight, bias_c_ ? &*bias_c_ : nullptr);
      if (p.residual < out.residual) out = p;
    }
    return out;
  }
  bool weight_inferred() const { return inferred_; }

 private:
  static std::optional<std::vector<float>> vector_of(std::optional<Values> values) {
    if (!values) return std::nullopt;
    return std::move(values->v);
  }
  std::vector<int64_t> head_rows(int64_t rows, int64_t most) const {
    std::vector<int64_t> out;
    for (const int64_t token : sample_indices(rows / heads_, std::max<int64_t>(1, most / heads_)))
      for (int64_t h = 0; h < heads_; ++h) out.push_back(token * heads_ + h);
    return out;
  }
  // Without a checkpoint the reference's own weight is what its output says it is, if one kind of norm fits to
  // rounding.
  void infer_weight() {
    if (r_.x.rows() < 8) return;
    double best = failing_.tolerance;
    for (const Kind kind : {Kind::kRms, Kind::kLayer}) {
      std::vector<double> normal, xy(static_cast<size_t>(channels_)), xx(static_cast<size_t>(channels_));
      for (int64_t i = 0; i < r_.x.rows(); ++i) {
        normalise(r_.x.row(i), kind, 1e-6, normal);
        for (size_t j = 0; j < normal.size(); ++j) xy[j] += normal[j] * r_.y.row(i)[j], xx[j] += normal[j] * normal[j];
      }
      std::vector<float> weight(xy.size());
      for (size_t j = 0; j < weight.size(); ++j) weight[j] = static_cast<float>(xx[j] > 0 ? xy[j] / xx[j] : 1);
      const double residual =
          residual_of(r_.x, r_.y, 1, {kind, 1e-6, Span::kChannels, WeightUse::kPlain, "", 0}, &weight, nullptr);
      if (residual < best) best = residual, weight_r_ = weight, weight_c_ = weight, inferred_ = true;
    }
  }
  double measure(const Prepared& side, const Params& p, bool candidate) const {
    const auto& weight = candidate ? weight_c_ : weight_r_;
    const auto& bias = candidate ? bias_c_ : bias_r_;
    if (weight && static_cast<int64_t>(weight->size()) != channels_) return INFINITY;
    const bool has_bias = bias && static_cast<int64_t>(bias->size()) == channels_ && p.use != WeightUse::kNone;
    return residual_of(side.x, side.y, p.span == Span::kHeads ? heads_ : 1, p, weight ? &*weight : nullptr,
                       has_bias ? &*bias : nullptr);
  }

  Case& failing_;
  int64_t channels_ = 1, heads_ = 1;
  Prepared r_, c_;
  std::optional<std::vector<float>> weight_r_, weight_c_, bias_r_, bias_c_;
  bool inferred_ = false;
};

Finding describe(const Params& r, const Params& c) {
  Finding out{"",          fmt::format("reference: {}; yours: {}", formula(r), formula(c)),
              "",          "",
              r.residual,  c.residual,
              0.8,         0,
              Blame::kNone};
  if (c.twice) {
    out.cause = "norm.twice";
    out.fix = "normalise once";
  } else if (c.kind == Kind::kNone) {
    out.cause = "norm.missing";
    out.fix = fmt::format("apply {} here", formula(r));
  } else if (c.kind != r.kind) {
    out.cause = c.kind == Kind::kUnit || r.kind == Kind::kUnit ? "norm.factor" : "norm.kind";
    out.fix = fmt::format("use {} in place of {}", kind_name(r.kind), kind_name(c.kind));
  } else if (c.span != r.span) {
    out.cause = "norm.axis";
    out.fix =
        fmt::format("normalise{} instead", r.span == Span::kChannels ? " each head by itself" : span_name(r.span));
  } else if (c.use != r.use) {
    out.cause = c.use == WeightUse::kNone   ? "norm.weight_missing"
                : r.use == WeightUse::kNone ? "norm.weight_added"
                                            : "norm.one_plus_weight";
    out.fix = fmt::format("multiply as the reference does: {}", formula(r));
  } else if (c.weight != r.weight) {
    out.cause = "norm.other_weight";
    out.fix = fmt::format("load this norm's own weight; yours holds {}", c.weight);
    out.blame = Blame::kWeights;
  } else {
    out.cause = "norm.eps";
    out.fix = fmt::format("set eps to {:g}", r.eps);
  }
  return out;
}

}  // namespace

void search_norm(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || !failing.is_leaf || failing.role == Role::kInput) return;
  for (const Item* input : equal_size_items(failing, 6)) {
    if (failing.candidate_of(*input).size() != failing.r.size()) continue;
    const Search search(failing, *input);
    const Params r = search.best(false);
    if (r.kind == Kind::kNone || !failing.explains(r.residual)) continue;
    if (failing.note_local(search.measure(true, r))) return;
    Params c = search.best(true);
    const Params other = search.other_weight(r);
    if (other.residual < 0.3 * c.residual) c = other;
    if (!failing.explains_candidate(c.residual) || !failing.is_better(c.residual, search.measure(true, r))) return;
    out.push_back(describe(r, c));
    return;
  }
}

bool confirm_norm(Case& failing) {
  if (failing.r.rank() < 2 || !failing.is_leaf) return false;
  for (const Item* input : equal_size_items(failing, 2)) {
    const Search search(failing, *input);
    const Params r = search.best(false);
    if (r.kind != Kind::kNone && failing.explains(r.residual) && failing.explains(search.measure(true, r))) return true;
  }
  return false;
}

}  // namespace lockstep
