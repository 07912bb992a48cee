#include "diagnose/norm/norm_search.h"
#include "measure/line_fit.h"
#include "measure/residual.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

std::optional<std::vector<float>> vector_of(std::optional<Values> values) {
  if (!values) return std::nullopt;
  return std::move(values->v);
}

}  // namespace

void normalise(double* x, int64_t n, int64_t stride, const NormParams& p) {
  double sum = 0, squares = 0, absolute = 0, largest = 0;
  const int64_t first = p.part < 0 ? std::max<int64_t>(0, n + p.part) : 0;
  const int64_t last = p.part > 0 ? std::min(n, p.part) : n;
  for (int64_t i = first; i < last; ++i) sum += in_format(x[i * stride], p.statistic);
  const double count = static_cast<double>(last - first);
  const bool centred = p.kind == NormKind::kLayer || p.kind == NormKind::kCentred || p.kind == NormKind::kSample ||
                       p.kind == NormKind::kVariance || p.kind == NormKind::kMeanKept;
  const double mean = centred ? sum / count : 0;
  for (int64_t i = first; i < last; ++i) {
    const double d = in_format(x[i * stride], p.statistic) - mean;
    squares = in_format(squares + in_format(d * d, p.square), p.sum);
    absolute += std::fabs(d), largest = std::max(largest, std::fabs(d));
  }
  squares = count * std::max(p.least, in_format(p.counted * squares / count, p.squares));
  const auto root = [&](double variance) {
    if (p.power != NormParams{}.power) return std::pow(variance + p.eps, p.power);
    return p.eps_outside ? 1 / (std::sqrt(variance) + p.eps) : 1 / std::sqrt(variance + p.eps);
  };
  double factor = 1;
  switch (p.kind) {
    case NormKind::kRms:
    case NormKind::kLayer:
    case NormKind::kMeanKept:
    case NormKind::kCentredRms:
      factor = root(squares / count);
      break;
    case NormKind::kSample:
      factor = root(squares / std::max(1.0, count - 1));
      break;
    case NormKind::kVariance:
      factor = 1 / (squares / count + p.eps);
      break;
    case NormKind::kUnit:
      factor = 1 / std::sqrt(std::max(squares, 1e-24));
      break;
    case NormKind::kMeanAbs:
      factor = 1 / (absolute / count + p.eps);
      break;
    case NormKind::kLargest:
      factor = 1 / (largest + p.eps);
      break;
    case NormKind::kNone:
    case NormKind::kCentred:
      break;
  }
  factor = in_format(factor, p.factor);
  const double taken = p.kind == NormKind::kMeanKept ? 0 : p.kind == NormKind::kCentredRms ? sum / count : mean;
  for (int64_t i = 0; i < n; ++i) x[i * stride] = (x[i * stride] - taken) * factor;
}

namespace {

double weight_factor(WeightUse use, double w) {
  switch (use) {
    case WeightUse::kPlain:
      return w;
    case WeightUse::kOnePlus:
      return 1 + w;
    case WeightUse::kTwice:
      return w * w;
    case WeightUse::kInverse:
      return w == 0 ? 0 : 1 / w;
    case WeightUse::kNone:
    case WeightUse::kBefore:
      break;
  }
  return 1;
}

}  // namespace

const char* kind_name(NormKind kind) {
  static const char* const kNames[] = {"RMSNorm",
                                       "LayerNorm",
                                       "x",
                                       "x / ||x||",
                                       "x - mean(x)",
                                       "(x - mean) / variance",
                                       "LayerNorm with n - 1",
                                       "x / mean|x|",
                                       "x / max|x|",
                                       "x / std(x), the mean kept",
                                       "(x - mean) / rms(x)"};
  return kNames[static_cast<size_t>(kind)];
}

const char* span_name(NormSpan span) {
  static const char* const kNames[] = {"",
                                       " over all heads together",
                                       " over the tokens",
                                       " over the whole tensor",
                                       " in groups of channels",
                                       " in groups of channels over all tokens",
                                       " along another axis",
                                       " by one row's statistic for all"};
  return kNames[static_cast<size_t>(span)];
}

std::string formula(const NormParams& p) {
  std::string out = kind_name(p.kind);
  if (p.kind == NormKind::kRms || p.kind == NormKind::kLayer)
    out += fmt::format("(x, eps {:g}{})", p.eps, p.eps_outside ? " outside the root" : "");
  out += p.groups > 1                ? fmt::format(" in {} groups of channels{}", p.groups,
                                    p.span == NormSpan::kGroupsOfAll ? " over all tokens" : "")
         : p.span == NormSpan::kAxis ? fmt::format(" along axis {}", p.axis)
                                     : span_name(p.span);
  if (p.part) out += fmt::format(" by the {} {} channels alone", p.part > 0 ? "first" : "last", std::abs(p.part));
  if (p.least > 0) out += fmt::format(" with a mean of squares of {:.4g} or more", p.least);
  if (p.power == 0.5)
    out += " (multiplied by the root, not divided by it)";
  else if (p.power != NormParams{}.power)
    out += fmt::format(" (multiplied by the mean of squares to the power {:g})", p.power);
  if (p.counted != 1) out += fmt::format(" with a mean of squares {:.4g} times too large", p.counted);
  const std::string weight = p.weight.empty() ? "weight" : p.weight;
  if (p.use == WeightUse::kPlain) out += " * " + weight;
  if (p.use == WeightUse::kOnePlus) out += " * (1 + " + weight + ")";
  if (p.use == WeightUse::kTwice) out += " * " + weight + "^2";
  if (p.use == WeightUse::kInverse) out += " / " + weight;
  if (p.use == WeightUse::kBefore) out += ", x multiplied by " + weight + " before";
  if (!p.bias) out += ", without bias";
  if (p.twice) out += ", and the same once more on the result";
  const std::pair<Format, const char*> held[] = {{p.input, "x"},
                                                 {p.squares, "the mean of the squares"},
                                                 {p.factor, "the factor of each row"},
                                                 {p.normal, "its result"},
                                                 {p.weighted, "the weight"},
                                                 {p.statistic, "x for the statistic"},
                                                 {p.square, "the squares"},
                                                 {p.sum, "the sum of the squares"}};
  for (const auto& [format, what] : held)
    if (format) out += fmt::format(", {} in {}", what, format->name);
  return out;
}

NormSearch::NormSearch(Case& failing, const Item& input) : failing_(failing), input_(input) {
  const int axis = channel_axis(failing.name, failing.r.shape);
  channels_ = failing.r.dim(axis);
  heads_ = failing.r.rank() == 4 && axis == 3 ? failing.r.dim(2) : 1;
  batch_ = failing.r.rank() >= 3 && axis > 0 ? failing.r.dim(0) : 1;
  Values x_r = failing.reference_of(input), x_c = failing.candidate_of(input);
  x_r.shape = x_c.shape = failing.r.shape;
  r_ = side_of(x_r, failing.r, axis), c_ = side_of(x_c, failing.c, axis);
  for (const char* leaf : {".weight", ".gamma", ".scale"})
    if (!weight_r_)
      weight_r_ = vector_of(failing.weight_r(failing.module + leaf)),
      weight_c_ = vector_of(failing.weight_c(failing.module + leaf));
  bias_r_ = vector_of(failing.weight_r(failing.module + ".bias")),
  bias_c_ = vector_of(failing.weight_c(failing.module + ".bias"));
  const auto fits = [&](const auto& v) { return !v || static_cast<int64_t>(v->size()) == channels_; };
  if (!fits(weight_r_) || !fits(weight_c_)) weight_r_.reset(), weight_c_.reset();
  if (!fits(bias_r_) || !fits(bias_c_)) bias_r_.reset(), bias_c_.reset();
  if (!weight_r_) infer_weight();
}

NormSearch::Side NormSearch::side_of(const Values& x, const Values& y, int axis) const {
  Side out;
  const Values all_x = channels_last(x, axis), all_y = channels_last(y, axis);
  out.all_rows = all_x.rows();
  const int64_t most = channels_ > 1024 ? 64 : kFitRows;
  for (const int64_t token : sample_indices(out.all_rows / heads_, std::max<int64_t>(1, most / heads_)))
    for (int64_t h = 0; h < heads_; ++h) out.rows.push_back(token * heads_ + h);
  out.x = take_rows(all_x, out.rows), out.y = take_rows(all_y, out.rows);
  const int64_t of_item = out.all_rows / batch_;
  out.sums.resize(static_cast<size_t>(batch_ * heads_ * channels_)), out.squares.resize(out.sums.size());
  for (int64_t row = 0; row < of_item * batch_; ++row) {
    const size_t to = static_cast<size_t>((row / of_item * heads_ + row % heads_) * channels_);
    for (size_t j = 0; j < all_x.row(row).size(); ++j) {
      const double value = all_x.row(row)[j];
      out.sums[to + j] += value, out.squares[to + j] += value * value;
    }
  }
  return out;
}

namespace {

bool is_over_tokens(NormSpan span) {
  return span == NormSpan::kTokens || span == NormSpan::kAll || span == NormSpan::kGroupsOfAll;
}

}  // namespace

// By statistics over the tokens of an item of the batch: of each channel, of a group of them, of all.
std::vector<double> NormSearch::normal_over_tokens(const Side& side, const NormParams& p) const {
  const int64_t width = heads_ * channels_, rows = side.all_rows / batch_, size = channels_ / p.groups;
  const auto kind_of = [&](int64_t at) {  // at: [head, channel]
    return static_cast<size_t>(p.span == NormSpan::kTokens ? at : p.span == NormSpan::kAll ? 0 : at % channels_ / size);
  };
  const size_t kinds = static_cast<size_t>(p.span == NormSpan::kTokens ? width : p.groups);
  std::vector<double> mean(static_cast<size_t>(batch_) * kinds), factor(mean.size());
  for (size_t item = 0; item < static_cast<size_t>(batch_); ++item) {
    std::vector<double> sum(kinds), squares(kinds), count(kinds);
    for (int64_t at = 0; at < width; ++at) {
      const size_t from = item * static_cast<size_t>(width) + static_cast<size_t>(at), kind = kind_of(at);
      sum[kind] += side.sums[from], squares[kind] += side.squares[from];
      count[kind] += static_cast<double>(rows / heads_);
    }
    for (size_t k = 0; k < kinds; ++k) {
      const double about = p.kind == NormKind::kLayer ? sum[k] / count[k] : 0;
      const double variance = std::max(0.0, squares[k] / count[k] - about * about);
      mean[item * kinds + k] = about;
      factor[item * kinds + k] = p.kind == NormKind::kUnit ? 1 / std::sqrt(std::max(squares[k], 1e-24))
                                 : p.eps_outside           ? 1 / (std::sqrt(variance) + p.eps)
                                                           : 1 / std::sqrt(variance + p.eps);
    }
  }
  std::vector<double> out(side.x.v.begin(), side.x.v.end());
  for (size_t i = 0; i < side.rows.size(); ++i)
    for (int64_t j = 0; j < channels_; ++j) {
      const size_t item = static_cast<size_t>(side.rows[i] / rows);
      const size_t k = item * kinds + kind_of(side.rows[i] % heads_ * channels_ + j);
      double& x = out[i * static_cast<size_t>(channels_) + static_cast<size_t>(j)];
      x = (x - mean[k]) * factor[k];
    }
  return out;
}

std::vector<double> NormSearch::normal(const Side& side, const NormParams& p, const std::vector<float>* weight) const {
  if (is_over_tokens(p.span)) return normal_over_tokens(side, p);
  std::vector<double> x(side.x.v.begin(), side.x.v.end());
  if (p.input)
    for (double& value : x) value = in_format(value, p.input);
  const auto times_weight = [&](WeightUse use) {
    if (!weight) return;
    for (size_t i = 0; i < x.size(); ++i) x[i] *= weight_factor(use, (*weight)[i % static_cast<size_t>(channels_)]);
  };
  if (p.use == WeightUse::kBefore) times_weight(WeightUse::kPlain);
  for (int time = 0; time < (p.twice ? 2 : 1); ++time) {
    if (time) times_weight(p.use);
    const int64_t length = p.span == NormSpan::kHeads    ? heads_ * channels_
                           : p.span == NormSpan::kGroups ? channels_ / p.groups
                                                         : channels_;
    for (int64_t at = 0; at + length <= static_cast<int64_t>(x.size()); at += length)
      normalise(x.data() + at, length, 1, p);
  }
  if (p.normal)
    for (double& value : x) value = in_format(value, p.normal);
  return x;
}

double NormSearch::residual(const Side& side, const NormParams& p, const std::vector<float>* weight,
                            const std::vector<float>* bias) const {
  const std::vector<double> x = normal(side, p, weight);
  Residual unexplained;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t channel = i % static_cast<size_t>(channels_);
    double value = x[i];
    if (weight) value *= weight_factor(p.use, in_format((*weight)[channel], p.weighted));
    if (bias && p.bias) value += (*bias)[channel];
    const double target = side.y.v[i];
    unexplained.add(value, target);
  }
  return unexplained.relative();
}

double NormSearch::used_weight(const NormParams& p, size_t channel) const {
  return weight_c_ ? weight_factor(p.use, (*weight_c_)[channel]) : 1;
}

double NormSearch::measure(bool candidate, const NormParams& p) const {
  const auto& weight = candidate ? weight_c_ : weight_r_;
  const auto& bias = candidate ? bias_c_ : bias_r_;
  if (p.use != WeightUse::kNone && !weight) return INFINITY;
  return residual(candidate ? c_ : r_, p, weight ? &*weight : nullptr, bias ? &*bias : nullptr);
}

double NormSearch::measure_from(const Values& input, const NormParams& p) const {
  Values x = input;
  x.shape = failing_.r.shape;
  const Side side = side_of(x, failing_.c, channel_axis(failing_.name, failing_.r.shape));
  return residual(side, p, weight_c_ ? &*weight_c_ : nullptr, bias_c_ ? &*bias_c_ : nullptr);
}

double NormSearch::measure_after(double (*change)(double), const NormParams& p) const {
  if (is_over_tokens(p.span)) return INFINITY;  // only the sampled rows are changed
  Side side{c_.x, c_.y, c_.rows, c_.all_rows, {}, {}};
  for (float& value : side.x.v) value = static_cast<float>(change(value));
  return residual(side, p, weight_c_ ? &*weight_c_ : nullptr, bias_c_ ? &*bias_c_ : nullptr);
}

NormParams NormSearch::reference() const {
  NormParams out;
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer, NormKind::kUnit, NormKind::kNone})
    for (const double eps : {1e-6, 1e-5, 1e-8, 1e-12, 1e-3, 1e-2, 1e-4, 0.0}) {
      if ((kind == NormKind::kNone || kind == NormKind::kUnit) && eps != 1e-6) continue;
      for (const NormSpan span : {NormSpan::kChannels, NormSpan::kHeads}) {
        if (span == NormSpan::kHeads && (heads_ < 2 || kind == NormKind::kNone)) continue;
        for (const WeightUse use : {WeightUse::kNone, WeightUse::kPlain, WeightUse::kOnePlus}) {
          NormParams p;
          p.kind = kind, p.eps = eps, p.span = span, p.use = use, p.bias = use != WeightUse::kNone;
          p.residual = measure(false, p);
          if (p.residual < 0.97 * out.residual) out = p;  // a better eps must be better by more than rounding
        }
      }
    }
  return out;
}

// Starting from the reference's own form: each way to be different, then those that take a search.
NormParams NormSearch::candidate(const NormParams& r) const {
  NormParams out;
  const auto consider = [&](const NormParams& changed) {
    NormParams p = changed;
    p.residual = measure(true, p);
    if (p.residual < 0.97 * out.residual) out = p;
  };
  const auto with = [&](auto&& change) {
    NormParams p = r;
    change(p);
    consider(p);
  };
  for (const NormKind kind :
       {NormKind::kRms, NormKind::kLayer, NormKind::kUnit, NormKind::kNone, NormKind::kCentred, NormKind::kVariance,
        NormKind::kSample, NormKind::kMeanAbs, NormKind::kLargest, NormKind::kMeanKept, NormKind::kCentredRms})
    for (const WeightUse use : {WeightUse::kNone, WeightUse::kPlain, WeightUse::kOnePlus})
      with([&](NormParams& p) { p.kind = kind, p.use = use, p.bias = r.bias && use != WeightUse::kNone; });
  for (const double eps : {1e-6, 1e-5, 1e-8, 1e-12, 1e-3, 1e-2, 1e-4, 0.0}) {
    with([&](NormParams& p) { p.eps = eps; });
    with([&](NormParams& p) { p.eps = eps, p.eps_outside = true; });
  }
  for (const NormSpan span : {NormSpan::kChannels, NormSpan::kHeads})
    if (span != NormSpan::kHeads || heads_ > 1) with([&](NormParams& p) { p.span = span; });
  if (weight_c_)
    for (const WeightUse use : {WeightUse::kTwice, WeightUse::kInverse, WeightUse::kBefore})
      with([&](NormParams& p) { p.use = use; });
  if (bias_c_) with([](NormParams& p) { p.bias = !p.bias; });
  for (const NumberFormat& format : half_formats()) {
    for (const auto held : {&NormParams::input, &NormParams::normal, &NormParams::squares, &NormParams::factor,
                            &NormParams::statistic, &NormParams::square, &NormParams::sum})
      with([&](NormParams& p) { p.*held = &format; });
    with([&](NormParams& p) { p.statistic = p.square = &format; });
    with([&](NormParams& p) { p.input = p.normal = &format; });
    with([&](NormParams& p) { p.squares = p.factor = &format; });
    with([&](NormParams& p) { p.input = p.squares = p.factor = &format; });
    if (weight_c_ && r.use != WeightUse::kNone) with([&](NormParams& p) { p.weighted = &format; });
  }
  return unusual(along_other_axes(over_other_elements(out, r), r), r);
}

// The statistic of other elements than the channels of a token: of a group of them, of all tokens, of both. Such a norm
// is mostly of another kind too.
NormParams NormSearch::over_other_elements(NormParams usual, const NormParams& r) const {
  if (failing_.explains(usual.residual)) return usual;
  NormParams out = usual;
  const auto consider = [&](NormSpan span, int64_t groups) {
    for (const NormKind kind : {NormKind::kLayer, NormKind::kRms, NormKind::kUnit}) {
      if (kind == NormKind::kUnit && r.kind != kind) continue;
      NormParams p = r;
      p.span = span, p.groups = groups, p.kind = kind, p.residual = measure(true, p);
      if (p.residual < 0.97 * out.residual) out = p;
    }
  };
  consider(NormSpan::kTokens, 1), consider(NormSpan::kAll, 1);
  for (int64_t groups = 2; groups <= 64 && groups < channels_; ++groups)
    if (channels_ % groups == 0) consider(NormSpan::kGroups, groups), consider(NormSpan::kGroupsOfAll, groups);
  if (out.span == r.span) return out;
  for (const double eps : {1e-6, 1e-5, 1e-3}) {
    NormParams p = out;
    p.eps = eps, p.residual = measure(true, p);
    if (p.residual < 0.5 * out.residual) out = p;
  }
  return out;
}

// An eps that nobody would think of, or the norm of the norm.
NormParams NormSearch::unusual(NormParams usual, const NormParams& r) const {
  if (failing_.explains_candidate(usual.residual) && usual.residual < 2 * failing_.tolerance) return usual;
  NormParams out = usual, p = r, best = r;
  p.twice = true, p.residual = measure(true, p);
  if (p.residual < 0.3 * out.residual) out = p;
  p.twice = false, best.residual = INFINITY;
  for (double eps = 1e-9; eps < 1e4; eps *= 1.25) {  // coarse first: only what is found around the best one counts
    p.eps = eps, p.residual = measure(true, p);
    if (p.residual < best.residual) best = p;
  }
  best = finer_eps(best);
  if (best.residual < 0.3 * out.residual) out = best;
  if (failing_.explains(out.residual)) return out;
  const NormParams by_row = by_row_factor(r);
  return by_row.residual < 0.3 * out.residual ? by_row : out;
}

NormParams NormSearch::finer_eps(NormParams out) const {
  for (double step = 1.1; step > 1.0005; step = std::sqrt(step))
    for (const double eps : {out.eps * step, out.eps / step}) {
      NormParams p = out;
      p.eps = eps, p.residual = measure(true, p);
      if (p.residual < out.residual) out = p;
    }
  const double magnitude = std::pow(10, std::floor(std::log10(out.eps)) - 1);
  NormParams round = out;
  round.eps = std::round(out.eps / magnitude) * magnitude, round.residual = measure(true, round);
  return round.residual < 1.5 * out.residual || failing_.explains(round.residual) ? round : out;
}

// The weight of another norm in the candidate's place.
NormParams NormSearch::other_weight(const NormParams& r) const {
  NormParams out = r;
  out.residual = INFINITY;
  if (!failing_.weights_r || r.use == WeightUse::kNone) return out;
  const std::vector<double> x = normal(c_, r, weight());
  size_t loads = 0;
  for (const auto& [name, shape] : failing_.weights_r->shapes()) {
    if (checked_numel(shape) != channels_ || name.starts_with(failing_.module + ".") || ++loads > 800) continue;
    const auto other = vector_of(failing_.weight_r(name));
    if (!other) continue;
    Residual unexplained;
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t channel = i % static_cast<size_t>(channels_);
      const double target = c_.y.v[i];
      unexplained.add(x[i] * weight_factor(r.use, (*other)[channel]) + (bias_c_ && r.bias ? (*bias_c_)[channel] : 0),
                      target);
    }
    const double left = unexplained.relative();
    if (left < out.residual) out.residual = left, out.weight = name;
  }
  return out;
}

NormSearch::FreeWeight NormSearch::free_weight(const NormParams& r) const {
  FreeWeight out;
  NormParams plain = r;
  plain.use = WeightUse::kNone;
  const std::vector<double> x = normal(c_, plain, nullptr);
  const size_t n = static_cast<size_t>(channels_), rows = x.size() / n;
  if (rows < 12) return out;
  Residual unexplained;
  for (size_t j = 0; j < n; ++j) {
    LineFit points;
    for (size_t i = 0; i < rows; ++i) points.add(x[i * n + j], c_.y.v[i * n + j]);
    const Line line = points.line(0, 1e-9);
    out.a.push_back(static_cast<float>(line.scale)), out.b.push_back(static_cast<float>(line.offset));
    for (size_t i = 0; i < rows; ++i) unexplained.add(line.at(x[i * n + j]), c_.y.v[i * n + j]);
  }
  out.residual = unexplained.relative();
  return out;
}

// Without a checkpoint the reference's own weight is what its output says it is, if one kind of norm fits to rounding.
void NormSearch::infer_weight() {
  if (r_.x.rows() < 8) return;
  double best = failing_.tolerance;
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    NormParams p;
    p.kind = kind;
    const std::vector<double> x = normal(r_, p, nullptr);
    const size_t n = static_cast<size_t>(channels_);
    std::vector<double> xy(n), xx(n);
    for (size_t i = 0; i < x.size(); ++i) xy[i % n] += x[i] * r_.y.v[i], xx[i % n] += x[i] * x[i];
    std::vector<float> weight(n);
    for (size_t j = 0; j < n; ++j) weight[j] = static_cast<float>(xx[j] > 0 ? xy[j] / xx[j] : 1);
    p.use = WeightUse::kPlain;
    const double left = residual(r_, p, &weight, nullptr);
    if (left < best) best = left, weight_r_ = weight, weight_c_ = weight;
  }
}

}  // namespace lockstep
