// Which keys are hidden, whatever rule hides them: found key by key, from what the result lacks.
#include <algorithm>
#include <cmath>

#include "diagnose/attention/attention_grammar.h"

namespace lockstep {
namespace {

constexpr int64_t kEquationsPerKey = 4;  // fewer, and chance hides keys

// One query of one head: what each key weighs there, and how far its value is from the result.
struct QueryKeys {
  std::vector<double> power;      // exp(score - largest) by key
  std::vector<double> off, size;  // [keys, d]: value - result; by key: its square
  double sum = 0;                 // of the powers of the keys that are seen
  std::vector<double> error;      // result of the seen keys - recorded result
  double squared = 0;             // of `error`

  double dot_with(size_t key) const {
    const double* u = off.data() + key * error.size();
    double out = 0;
    for (size_t j = 0; j < error.size(); ++j) out += error[j] * u[j];
    return out;
  }
  // Of the squared error when the key is hidden (sign -1) or seen (sign 1) as well.
  double squared_with(size_t key, double sign) const {
    const double e = sign * power[key], rest = sum + e;
    if (e == 0) return squared;
    if (!(rest > 1e-12 * sum)) return INFINITY;
    return (sum * sum * squared + 2 * sum * e * dot_with(key) + e * e * size[key]) / (rest * rest);
  }
  // When one key is seen and another hidden in its place.
  double squared_with_exchange(size_t seen, size_t hidden) const {
    const double a = power[seen], b = power[hidden], rest = sum + a - b;
    if (!(rest > 1e-12 * sum)) return INFINITY;
    const size_t d = error.size();
    double out = 0;
    for (size_t j = 0; j < d; ++j) {
      const double e = sum * error[j] + a * off[seen * d + j] - b * off[hidden * d + j];
      out += e * e;
    }
    return out / (rest * rest);
  }
  void change(size_t key, double sign) {
    const double e = sign * power[key], rest = sum + e;
    const double* u = off.data() + key * error.size();
    squared = 0;
    for (size_t j = 0; j < error.size(); ++j) {
      error[j] = (sum * error[j] + e * u[j]) / rest;
      squared += error[j] * error[j];
    }
    sum = rest;
  }
  void see(const std::vector<bool>& hidden) {
    const size_t d = error.size();
    sum = 0, squared = 0;
    std::fill(error.begin(), error.end(), 0.0);
    for (size_t key = 0; key < power.size(); ++key) {
      if (hidden[key] || power[key] == 0) continue;
      sum += power[key];
      for (size_t j = 0; j < d; ++j) error[j] += power[key] * off[key * d + j];
    }
    for (double& value : error) value = sum > 0 ? value / sum : INFINITY, squared += value * value;
  }
};

// The key whose change brings the result nearest, again and again until none does. Keys hardly depend on each other
// (there are far more numbers in the results than keys) but for those that are nearly alike, as padding is: of them one
// may have to be taken for another.
void change_keys(std::vector<QueryKeys>& queries, std::vector<bool>& hidden, Budget& budget) {
  for (QueryKeys& query : queries) query.see(hidden);
  const auto total = [&] {
    double out = 0;
    for (const QueryKeys& query : queries) out += query.squared;
    return out;
  };
  const int64_t of_one = static_cast<int64_t>(queries.size() * queries[0].error.size());  // to change one key
  for (size_t changes = 0; changes < 2 * hidden.size(); ++changes) {
    if (!budget.spend(of_one * static_cast<int64_t>(hidden.size()))) return;
    double best = total() * (1 - 1e-9);
    size_t chosen = hidden.size();
    for (size_t key = 0; key < hidden.size(); ++key) {
      double with = 0;
      for (const QueryKeys& query : queries) with += query.squared_with(key, hidden[key] ? 1 : -1);
      if (with < best) best = with, chosen = key;
    }
    size_t other = hidden.size();
    for (size_t a = 0; a < hidden.size() && chosen == hidden.size(); ++a)
      for (size_t b = 0; b < hidden.size() && hidden[a]; ++b) {
        if (hidden[b] || !budget.spend(of_one)) continue;
        double with = 0;
        for (const QueryKeys& query : queries) with += query.squared_with_exchange(a, b);
        if (with < best) best = with, other = b, chosen = a;
      }
    if (chosen == hidden.size()) return;
    for (const size_t key : {chosen, other}) {
      if (key == hidden.size()) continue;
      for (QueryKeys& query : queries) query.change(key, hidden[key] ? 1 : -1);
      hidden[key] = !hidden[key];
    }
  }
}

}  // namespace

EditedForm<AttentionFormula> Attention::with_hidden_keys(const AttentionFormula& p, Budget& budget) const {
  AttentionFormula open = p;
  EditedForm<AttentionFormula> best;
  best.form = p;
  MaskFormula& mask = open.mask;
  mask.hidden_first = mask.hidden_last = mask.padded = mask.padded_front = mask.hidden_count = 0;
  mask.hidden_keys.clear();
  const int64_t looked_at = static_cast<int64_t>(sample_.rows.size() * sample_.heads.size()) * d_;
  if (looked_at < kEquationsPerKey * tokens_.all || p.weighting != Weighting::kSoftmax || head_size(p) != d_ ||
      mask.inverted || mask.transposed || mask.hiding != Hiding::kInfinite)
    return best;
  std::vector<QueryKeys> queries;
  const size_t keys = static_cast<size_t>(tokens_.all), d = static_cast<size_t>(d_);
  for (const int64_t head : sample_.heads)
    for (const int64_t row : sample_.rows) {
      QueryKeys query{Row(keys), Row(keys * d), Row(keys), 0, Row(d), 0};
      Row score;
      const auto v = all_rows(open, 2, head);
      if (!v || !scores(open, head, own_begin_ + row, score)) return best;
      const double largest = *std::max_element(score.begin(), score.end());
      const float* y = y_.row(row).data() + head * d_;
      for (size_t key = 0; key < keys; ++key) {
        query.power[key] = std::exp(score[key] - largest);
        for (size_t j = 0; j < d; ++j) {
          const double u = (*v)[key * d + j] - y[j];
          query.off[key * d + j] = u, query.size[key] += u * u;
        }
      }
      queries.push_back(std::move(query));
    }
  std::vector<bool> start(keys);
  for (size_t key = 0; key < keys; ++key)
    start[key] = is_hidden(p.mask, tokens_, tokens_.all - 1, static_cast<int64_t>(key)) &&
                 !is_hidden(open.mask, tokens_, tokens_.all - 1, static_cast<int64_t>(key));
  for (std::vector<bool> hidden : {start, std::vector<bool>(keys)}) {
    change_keys(queries, hidden, budget);
    AttentionFormula found = open;
    for (size_t key = 0; key < keys; ++key)
      if (hidden[key]) found.mask.hidden_keys.push_back(static_cast<int64_t>(key));
    const double residual = measure(found);
    const bool seen_at_all = p.mask.padded && found.mask.hidden_keys.empty();
    if (residual < best.residual)
      best = {found,
              residual,
              {seen_at_all ? EditName{"attention.mask_missing", other_mask(p.mask).fix} : other_mask(p.mask)}};
  }
  return best;
}

}  // namespace lockstep
