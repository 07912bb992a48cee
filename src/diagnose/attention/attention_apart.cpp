// Attentions that run over something else than the tokens of one call: the heads of a token, the channels of a head,
// the keys of two calls. And operands held in steps that all their tokens share.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "diagnose/attention/attention_formula.h"

namespace lockstep {
namespace {

constexpr int64_t kMostChannelProducts = int64_t{1} << 27;
constexpr int64_t kMostChannelSquares = int64_t{6} << 20;

double product(const double* a, const double* b, int64_t n) {
  double out = 0;
  for (int64_t j = 0; j < n; ++j) out += a[j] * b[j];
  return out;
}

// Scores become weights that sum to one.
void soften(std::vector<double>& scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) score = std::exp(score - largest), sum += score;
  for (double& score : scores) score /= sum;
}

}  // namespace

double largest_in(std::span<const double> x) {
  double out = 0;
  for (const double value : x) out = std::max(out, std::fabs(value));
  return out;
}

void round_in_steps(std::span<double> x, double largest, Format format) {
  const double most = !format ? 127 : format->cause == "precision.f8_e5m2" ? 57344 : 448, step = largest / most;
  if (!(step > 0)) return;
  for (double& value : x) value = step * (format ? in_format(value / step, format) : std::nearbyint(value / step));
}

// The largest number of an operand in all its heads, where it is held in steps.
double Attention::largest_of(const AttentionFormula& p, size_t operand) const {
  double out = 0;
  Row row;
  const int64_t every = operand == 0 ? 1 : std::max<int64_t>(1, heads(p) / in_.key_heads(d_));
  for (int64_t head = 0; head < heads(p); head += every)
    for (int64_t t = 0; t < tokens_.all; ++t)
      if (p.of[tokens_.is_first(t) ? 0 : 1][operand].steps == Steps::kByTensor && make_row(p, operand, head, t, row))
        out = std::max(out, largest_in(row));
  return out;
}

void Attention::hold_in_steps(const AttentionFormula& p, size_t operand, Rows& rows) const {
  const auto how = [&](int64_t t) -> const OperandFormula& { return p.of[tokens_.is_first(t) ? 0 : 1][operand]; };
  const OperandFormula& first = how(0).steps != Steps::kNone ? how(0) : how(tokens_.all - 1);
  if (first.steps == Steps::kNone || first.steps == Steps::kByRow || head_size(p) != d_) return;
  const size_t d = static_cast<size_t>(d_);
  std::vector<double> largest(d);  // by channel
  for (int64_t t = 0; t < tokens_.all; ++t)
    for (size_t j = 0; j < d && how(t).steps != Steps::kNone; ++j)
      largest[j] = std::max(largest[j], std::fabs(rows[static_cast<size_t>(t) * d + j]));
  const double of_all = first.steps == Steps::kByTensor ? largest_of(p, operand) : largest_in(largest);
  for (int64_t t = 0; t < tokens_.all; ++t) {
    if (how(t).steps == Steps::kNone) continue;
    double* row = rows.data() + t * d_;
    if (first.steps != Steps::kByChannel)
      round_in_steps({row, d}, of_all, first.in_steps);
    else
      for (size_t j = 0; j < d; ++j) round_in_steps({row + j, 1}, largest[j], first.in_steps);
  }
}

bool Attention::query_row(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const {
  const Steps steps = p.of[tokens_.is_first(query) ? 0 : 1][0].steps;
  if (steps == Steps::kNone || steps == Steps::kByRow) return make_row(p, 0, head, query, out);
  const auto rows = all_rows(p, 0, head);
  if (!rows || query >= tokens_.all) return false;
  out.assign(rows->begin() + query * head_size(p), rows->begin() + (query + 1) * head_size(p));
  return true;
}

// Each head of a token looks at the heads of that token.
bool Attention::attend_heads(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const {
  const int64_t d = head_size(p);
  const double scale = p.scale == 0 ? 1 / std::sqrt(static_cast<double>(d)) : p.scale;
  Row q, row, weights;
  if (query >= tokens_.all || !make_row(p, 0, head, query, q)) return false;
  const int64_t seen = p.mask.order == Order::kCausal ? head + 1 : heads(p);
  for (int64_t other = 0; other < seen; ++other) {
    if (!make_row(p, 1, other, query, row)) return false;
    weights.push_back(scale * product(q.data(), row.data(), d));
  }
  soften(weights);
  out.assign(static_cast<size_t>(d), 0);
  for (int64_t other = 0; other < seen; ++other) {
    if (!make_row(p, 2, other, query, row)) return false;
    for (size_t j = 0; j < out.size(); ++j) out[j] += weights[static_cast<size_t>(other)] * row[j];
  }
  return true;
}

bool Attention::attend_items(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const {
  const int64_t d = head_size(p);
  const double scale = p.scale == 0 ? 1 / std::sqrt(static_cast<double>(d)) : p.scale;
  std::vector<int> items{0};
  for (size_t i = 0; i < in_.others.size(); ++i)
    if (in_.others[i].is_of_batch) items.push_back(static_cast<int>(i) + 1);
  if (static_cast<int64_t>(items.size()) != in_.batch || query >= tokens_.all) return false;
  Row q, row, weights;
  const auto make = [&](size_t operand, int of) {
    AttentionFormula other = p;
    for (auto& stream : other.of) stream[operand].call = of;
    return make_row(other, operand, head, query, row);
  };
  if (!make_row(p, 0, head, query, q)) return false;
  for (const int of : items) {
    if (!make(1, of)) return false;
    weights.push_back(scale * product(q.data(), row.data(), d));
  }
  soften(weights);
  out.assign(static_cast<size_t>(d), 0);
  for (size_t i = 0; i < items.size(); ++i) {
    if (!make(2, items[i])) return false;
    for (size_t j = 0; j < out.size(); ++j) out[j] += weights[i] * row[j];
  }
  return true;
}

// The keys and values of an earlier call stand in front of this one's: all queries see them.
bool Attention::attend_earlier(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const {
  const int64_t d = head_size(p);
  if (p.weighting != Weighting::kSoftmax || d != d_) return false;
  const auto k = all_rows(p, 1, head), v = all_rows(p, 2, head);
  Row weights, q, row;
  if (!k || !v || !scores(p, head, query, weights) || !query_row(p, head, query, q)) return false;
  std::array<Rows, 2>& earlier = earlier_[head];
  if (earlier[0].empty())
    for (size_t s = 0; s < in_.streams.size(); ++s)
      for (const size_t operand : {size_t{1}, size_t{2}}) {
        OperandFormula how = p.of[s][operand];
        how.call = p.keys_of_call;
        const Values* from = values(how, s);
        const int64_t own = key_head(p, s, operand, head);
        for (int64_t t = 0; from && t < in_.tokens_of(*from, d_); ++t) {
          if (!turned_block(how, s, own, t, t, own, row)) return false;
          earlier[operand - 1].insert(earlier[operand - 1].end(), row.begin(), row.end());
        }
      }
  if (earlier[0].empty() || earlier[0].size() != earlier[1].size()) return false;
  const double scale = p.scale == 0 ? 1 / std::sqrt(static_cast<double>(d)) : p.scale;
  const size_t own_keys = weights.size(), earlier_keys = earlier[0].size() / static_cast<size_t>(d);
  for (size_t t = 0; t < earlier_keys; ++t)
    weights.push_back(scale * product(q.data(), earlier[0].data() + t * static_cast<size_t>(d), d));
  soften(weights);
  out.assign(static_cast<size_t>(d), 0);
  for (size_t t = 0; t < weights.size(); ++t) {
    const double* value =
        (t < own_keys ? v->data() : earlier[1].data()) + (t < own_keys ? t : t - own_keys) * static_cast<size_t>(d);
    for (size_t j = 0; j < out.size() && weights[t] > 0; ++j) out[j] += weights[t] * value[j];
  }
  return true;
}

// out_i = sum_j softmax_j(q_i . k_j) v_j, with q_i the channel's values at all tokens.
bool Attention::attend_channels(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const {
  const int64_t d = head_size(p);
  const auto k = all_rows(p, 1, head), v = all_rows(p, 2, head);
  if (!k || !v || d * d > kMostChannelSquares || query >= tokens_.all) return false;
  Row& w = by_head_[head];
  if (w.empty()) {
    if (tokens_.all * d * d > kMostChannelProducts) return false;
    w.assign(static_cast<size_t>(d * d), 0);
    Row q;
    for (int64_t t = 0; t < tokens_.all; ++t) {
      if (!make_row(p, 0, head, t, q)) return false;
      for (int64_t i = 0; i < d; ++i)
        for (int64_t j = 0; j < d; ++j)
          w[static_cast<size_t>(i * d + j)] += q[static_cast<size_t>(i)] * (*k)[static_cast<size_t>(t * d + j)];
    }
    const double scale = p.scale == 0 ? 1 / std::sqrt(static_cast<double>(d)) : p.scale;
    for (int64_t i = 0; i < d; ++i) {
      double* row = w.data() + i * d;
      const double largest = scale * *std::max_element(row, row + d);
      double sum = 0;
      for (int64_t j = 0; j < d; ++j) row[j] = std::exp(scale * row[j] - largest), sum += row[j];
      for (int64_t j = 0; j < d; ++j) row[j] /= sum;
    }
  }
  out.resize(static_cast<size_t>(d));
  for (int64_t i = 0; i < d; ++i) out[static_cast<size_t>(i)] = product(w.data() + i * d, v->data() + query * d, d);
  return true;
}

}  // namespace lockstep
