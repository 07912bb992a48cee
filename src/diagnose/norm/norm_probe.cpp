#include "diagnose/norm/norm_probe.h"
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

NormProbe::NormProbe(Case& failing, const Item& input) : failing_(failing), input_(input) {
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

NormProbe::Side NormProbe::side_of(const Values& x, const Values& y, int axis) const {
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
std::vector<double> NormProbe::normal_over_tokens(const Side& side, const NormParams& p) const {
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

std::vector<double> NormProbe::normal(const Side& side, const NormParams& p, const std::vector<float>* weight) const {
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

double NormProbe::residual(const Side& side, const NormParams& p, const std::vector<float>* weight,
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

double NormProbe::used_weight(const NormParams& p, size_t channel) const {
  return weight_c_ ? weight_factor(p.use, (*weight_c_)[channel]) : 1;
}

double NormProbe::measure(bool candidate, const NormParams& p) const {
  const auto& weight = candidate ? weight_c_ : weight_r_;
  const auto& bias = candidate ? bias_c_ : bias_r_;
  if (p.use != WeightUse::kNone && !weight) return INFINITY;
  if (p.span == NormSpan::kAxis) return candidate ? measure_along_axis(p) : INFINITY;
  return residual(candidate ? c_ : r_, p, weight ? &*weight : nullptr, bias ? &*bias : nullptr);
}

// Of the whole tensor: rows of a sample hold no other axis.
double NormProbe::measure_along_axis(const NormParams& p) const {
  const Shape& shape = failing_.r.shape;
  const int64_t length = shape[static_cast<size_t>(p.axis)];
  int64_t inner = 1;
  for (size_t i = static_cast<size_t>(p.axis) + 1; i < shape.size(); ++i) inner *= shape[i];
  const Values& x = failing_.candidate_of(input_);
  std::vector<double> made(x.v.begin(), x.v.end());
  for (int64_t at = 0; at < x.size() / length; ++at)
    normalise(made.data() + at / inner * inner * length + at % inner, length, inner, p);
  const double root = p.root_of_channels ? std::sqrt(static_cast<double>(channels_) / static_cast<double>(length)) : 1;
  Values scaled{shape, {}};
  for (const double value : made) scaled.v.push_back(static_cast<float>(root * value));
  NormParams plain = p;
  plain.kind = NormKind::kNone, plain.span = NormSpan::kChannels;
  return measure_from(scaled, plain);
}

double NormProbe::measure_from(const Values& input, const NormParams& p) const {
  Values x = input;
  x.shape = failing_.r.shape;
  const Side side = side_of(x, failing_.c, channel_axis(failing_.name, failing_.r.shape));
  return residual(side, p, weight_c_ ? &*weight_c_ : nullptr, bias_c_ ? &*bias_c_ : nullptr);
}

double NormProbe::measure_after(double (*change)(double), const NormParams& p) const {
  if (is_over_tokens(p.span)) return INFINITY;  // only the sampled rows are changed
  Side side{c_.x, c_.y, c_.rows, c_.all_rows, {}, {}};
  for (float& value : side.x.v) value = static_cast<float>(change(value));
  return residual(side, p, weight_c_ ? &*weight_c_ : nullptr, bias_c_ ? &*bias_c_ : nullptr);
}

EditedForm<NormParams> NormProbe::with_other_weight(const NormParams& r) const {
  EditedForm<NormParams> out{r};
  if (!failing_.weights_r || r.use == WeightUse::kNone) return out;
  const std::vector<double> x = normal(c_, r, weight());
  const auto left_with = [&](const std::vector<float>& weight, const std::optional<std::vector<float>>& bias) {
    Residual unexplained;
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t channel = i % static_cast<size_t>(channels_);
      unexplained.add(x[i] * weight_factor(r.use, weight[channel]) + (bias && r.bias ? (*bias)[channel] : 0),
                      c_.y.v[i]);
    }
    return unexplained.relative();
  };
  size_t loads = 0;
  std::string with_bias;
  for (const auto& [name, shape] : failing_.weights_r->shapes()) {
    if (checked_numel(shape) != channels_ || name.starts_with(failing_.module + ".") || ++loads > 800) continue;
    const auto other = vector_of(failing_.weight_r(name));
    if (!other) continue;
    const auto take = [&](double left, const std::string& words) {
      if (left < out.residual) out.residual = left, out.form.weight = name, with_bias = words;
    };
    take(left_with(*other, bias_c_), "");
    // With its bias, as where two norms were exchanged as a whole.
    const auto its_bias =
        r.bias && name.ends_with(".weight") ? vector_of(failing_.weight_r(parent_of(name) + ".bias")) : std::nullopt;
    if (its_bias && static_cast<int64_t>(its_bias->size()) == channels_)
      take(left_with(*other, its_bias), " and its bias");
  }
  out.names = {{"norm.other_weight", "load this norm's own weight; yours holds " + out.form.weight + with_bias,
                Blame::kWeights}};
  return out;
}

NormProbe::FreeWeight NormProbe::free_weight(const NormParams& r) const {
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
void NormProbe::infer_weight() {
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
