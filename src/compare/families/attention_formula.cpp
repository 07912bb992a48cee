#include "compare/families/attention_formula.h"

#include <algorithm>

namespace lockstep {
namespace {

// The softmax over the queries needs all of them: beyond this many it is not tried.
constexpr int64_t kMostQueries = 1024;

void make_unit(std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  const double size = std::sqrt(sum / static_cast<double>(x.size()));
  for (double& value : x) value /= std::max(size, 1e-12);
}

}  // namespace

Attention::Attention(const AttentionInputs& inputs, const Values& target, int64_t head_size, int64_t rows,
                     int64_t heads)
    : in_(inputs), y_(target), d_(head_size), heads_(target.last() / head_size) {
  rows_ = sample_indices(target.rows(), rows);
  head_sample_ = sample_indices(heads_, heads);
}

double Attention::measure(const AttentionFormula& p) const {
  double dd = 0, yy = 0;
  for (const int64_t h : head_sample_) {
    Stack q, k, v;
    if (!gather(p, h, q, k, v)) return INFINITY;
    std::vector<double> by_key;
    if (p.weighting == Weighting::kOverQueries) {
      if (q.tokens > kMostQueries) return INFINITY;
      by_key = totals_by_key(p, q, k);
    }
    for (const int64_t row : rows_) {
      const std::vector<double> got = attend(p, q, k, v, q.own_begin + row, by_key);
      for (int64_t j = 0; j < d_; ++j) {
        const double target = y_.row(row)[static_cast<size_t>(h * d_ + j)], d = got[static_cast<size_t>(j)] - target;
        dd += d * d, yy += target * target;
      }
    }
  }
  return yy > 0 && std::isfinite(dd) ? std::sqrt(dd / yy) : INFINITY;
}

bool Attention::gather(const AttentionFormula& p, int64_t h, Stack& q, Stack& k, Stack& v) const {
  const int64_t repeat = std::max<int64_t>(1, heads_ / in_.key_heads(d_));
  const int64_t groups = in_.key_heads(d_);
  const int64_t group = p.one_group ? 0 : ((p.tiled ? h % groups : h / repeat) + p.head_shift) % groups;
  const bool all_queries = p.weighting == Weighting::kOverQueries;
  for (size_t s = 0; s < in_.streams.size(); ++s) {
    const AttentionStream& stream = in_.streams[s];
    const bool own = static_cast<int>(s) == in_.own;
    if (p.own_stream && !own) continue;
    const AttentionFormula& of = p.only_stream < 0 || p.only_stream == static_cast<int>(s) ? p : base_;
    const Values* three[] = {of.early_q ? stream.early_q : stream.q, of.early_k ? stream.early_k : stream.k, stream.v};
    const QkvOrder& order = kQkvOrders[of.qkv];
    const Values *xq = three[order.q], *xk = three[order.k], *xv = three[order.v];
    if (!xq || !xk || !xv) return false;
    const bool uses_q = order.q != 0 || order.k == 0 || order.v == 0;  // where fewer key heads are not enough
    if (of.qkv && (!three[0] || !three[1] || three[1]->size() != stream.v->size() ||
                   (uses_q && three[0]->size() != three[1]->size())))
      return false;
    const size_t other = in_.streams.size() == 2 ? 1 - s : s;
    const RotaryTable& table = of.tables_exchanged ? in_.streams[other].table : stream.table;
    if (own) {
      k.own_begin = k.tokens, k.own_end = k.tokens + in_.tokens_of(*xk, d_);
      q.own_begin = q.tokens, q.own_end = q.tokens + in_.tokens_of(*xq, d_);
    }
    if (s == 0) k.first_stream = in_.tokens_of(*xk, d_);
    const auto rotated_by = [&](bool rotates) { return rotates ? &table : nullptr; };
    const AttentionFormula &turn_q = of.only_operand == 1 ? base_ : of, &turn_k = of.only_operand == 0 ? base_ : of;
    const Operand with_q{xq,          h,         rotated_by(of.rotate_q), turn_q,
                         of.q_factor, of.unit_q, (of.strided & 1) != 0,   of.q_weight};
    const Operand with_k{xk,          group,     rotated_by(of.rotate_k), turn_k,
                         of.k_factor, of.unit_k, (of.strided & 2) != 0,   of.k_weight};
    const Operand with_v{xv, group, rotated_by(of.rotate_v), of, of.v_factor, of.unit_v, (of.strided & 4) != 0, -1};
    if ((own || all_queries) && !append(q, with_q, of)) return false;
    if (!append(k, with_k, of) || !append(v, with_v, of)) return false;
  }
  return q.own_end - q.own_begin == y_.rows();
}

bool Attention::append(Stack& to, const Operand& operand, const AttentionFormula& p) const {
  const Values& from = *operand.values;
  const int64_t width = from.size() / in_.tokens_of(from, d_), heads = width / d_;
  if ((operand.head + 1) * d_ > width) return false;
  const int64_t tokens = from.size() / width;
  std::vector<double> x(static_cast<size_t>(d_));
  to.rows.reserve(to.rows.size() + static_cast<size_t>(tokens * d_));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < d_; ++j) {
      const int64_t at = operand.strided ? j * heads + operand.head : operand.head * d_ + j;
      x[static_cast<size_t>(j)] = in_format(from.v[static_cast<size_t>(t * width + at)], p.inputs);
    }
    if (operand.unit) make_unit(x);
    if (operand.weight >= 0)
      for (int64_t j = 0; j < d_; ++j)
        x[static_cast<size_t>(j)] *=
            in_.norm_weights[static_cast<size_t>(operand.weight)].second[static_cast<size_t>(j)];
    const AttentionFormula& turn = operand.turn;
    if (operand.table && turn.rotation != Rotation::kNone) {
      int64_t row = turn.backwards ? tokens - 1 - t : t + turn.shift;
      if (turn.wraps) row = (row % tokens + tokens) % tokens;
      if (!operand.table->rotate(x, row, turn.rotation, turn.sign, turn.cos_sin, turn.rotated, turn.turns,
                                 turn.from_zero))
        return false;
    }
    for (const double value : x) to.rows.push_back(in_format(operand.factor * value, p.rotated_inputs));
  }
  to.tokens += tokens;
  return true;
}

double Attention::score(const AttentionFormula& p, const Stack& q, const Stack& k, int64_t row, int64_t key) const {
  const double scale = p.scale == 0 ? 1 / std::sqrt(static_cast<double>(d_)) : p.scale;
  double sum = 0;
  for (int64_t j = 0; j < d_; ++j)
    sum += q.rows[static_cast<size_t>(row * d_ + j)] * k.rows[static_cast<size_t>(key * d_ + j)];
  return in_format(p.cap > 0 ? p.cap * std::tanh(sum * scale / p.cap) : sum * scale, p.scores);
}

std::vector<double> Attention::totals_by_key(const AttentionFormula& p, const Stack& q, const Stack& k) const {
  std::vector<double> out(static_cast<size_t>(k.tokens));
  for (int64_t row = 0; row < q.tokens; ++row)
    for (int64_t key = 0; key < k.tokens; ++key) out[static_cast<size_t>(key)] += std::exp(score(p, q, k, row, key));
  return out;
}

std::vector<double> Attention::attend(const AttentionFormula& p, const Stack& q, const Stack& k, const Stack& v,
                                      int64_t row, const std::vector<double>& by_key) const {
  std::vector<double> scores(static_cast<size_t>(k.tokens)), weights(scores.size());
  const bool late = p.weighting == Weighting::kMaskedLate;
  double largest = -INFINITY, total = 0;
  for (int64_t t = 0; t < k.tokens; ++t) {
    scores[static_cast<size_t>(t)] =
        !late && is_hidden(p, k, row - q.own_begin, t) ? -INFINITY : score(p, q, k, row, t);
    largest = std::max(largest, scores[static_cast<size_t>(t)]);
  }
  std::vector<double> out(static_cast<size_t>(d_));
  for (int64_t t = 0; t < k.tokens; ++t) {
    const double score = scores[static_cast<size_t>(t)];
    if (score == -INFINITY) continue;
    double weight = p.weighting == Weighting::kPlain         ? score
                    : p.weighting == Weighting::kSigmoid     ? 1 / (1 + std::exp(-score))
                    : p.weighting == Weighting::kOverQueries ? std::exp(score) / by_key[static_cast<size_t>(t)]
                                                             : std::exp(score - largest);
    total += weight;  // kernels that round for the product sum what was not rounded
    weights[static_cast<size_t>(t)] = in_format(weight, p.powers);
  }
  if (p.weighting != Weighting::kSoftmax && !late) total = 1;
  for (int64_t t = 0; t < k.tokens; ++t) {
    if (late && is_hidden(p, k, row - q.own_begin, t)) continue;
    const double weight = p.result_factor * in_format(weights[static_cast<size_t>(t)] / total, p.weights);
    if (weight == 0) continue;
    for (int64_t j = 0; j < d_; ++j) out[static_cast<size_t>(j)] += weight * v.rows[static_cast<size_t>(t * d_ + j)];
  }
  for (double& value : out) value = in_format(value, p.result);
  return out;
}

bool Attention::is_hidden(const AttentionFormula& p, const Stack& k, int64_t row, int64_t key) {
  const int64_t own = k.own_begin + row;
  const bool mine = key >= k.own_begin && key < k.own_end;
  if (p.mask == Mask::kInverted) return key >= k.first_stream || key < k.first_stream - p.padded;
  if (key >= p.hidden_from && key < p.hidden_from + p.hidden_count) return true;
  if (p.hidden_first && key < p.hidden_first) return true;
  if (p.hidden_last && key >= k.tokens - p.hidden_last) return true;
  if (p.padded && key < k.first_stream && key >= k.first_stream - p.padded) return true;
  if (p.window && std::abs(key - own) >= p.window) return true;
  return (p.mask == Mask::kCausal && key > own) || (p.mask == Mask::kStrict && key >= own && own > 0) ||
         (p.mask == Mask::kStrictButFirst && (own > 0 ? key >= own : key > 0)) ||
         (p.mask == Mask::kReverse && key < own) || (p.mask == Mask::kOtherStream && mine);
}

}  // namespace lockstep
