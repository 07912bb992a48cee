#include "diagnose/attention/attention_formula.h"
#include "measure/residual.h"

#include <algorithm>
#include <numeric>

namespace lockstep {
namespace {

// The softmax over the queries needs all of them: beyond this many it is not tried.
constexpr int64_t kMostQueries = 1024;
constexpr int64_t kMadeElements = int64_t{6} << 20;  // of keys and values kept at a time

void make_unit(std::vector<double>& x, Unit unit, double rms_of_all) {
  const double n = static_cast<double>(x.size());
  double mean = 0, sum = 0;
  if (unit == Unit::kLayer)
    for (const double value : x) mean += value / n;
  for (double& value : x) value -= mean, sum += value * value;
  const double size = unit == Unit::kRmsOfAllHeads ? rms_of_all : std::sqrt(unit == Unit::kLength ? sum : sum / n);
  for (double& value : x) value /= std::max(size, 1e-12);
}

double dot(const double* a, const double* b, int64_t n) {
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  int64_t j = 0;
  for (; j + 4 <= n; j += 4)
    s0 += a[j] * b[j], s1 += a[j + 1] * b[j + 1], s2 += a[j + 2] * b[j + 2], s3 += a[j + 3] * b[j + 3];
  for (; j < n; ++j) s0 += a[j] * b[j];
  return s0 + s1 + s2 + s3;
}

int64_t round_trip(int64_t i, int64_t n) {
  return (i % n + n) % n;
}

}  // namespace

AttentionSample attention_sample(const Values& a, const Values& b, int64_t head_size, int64_t rows, int64_t heads) {
  std::vector<double> of_row(static_cast<size_t>(a.rows())), of_head(static_cast<size_t>(a.last() / head_size));
  for (int64_t row = 0; row < a.rows(); ++row)
    for (int64_t j = 0; j < a.last(); ++j) {
      const double off = static_cast<double>(a.row(row)[static_cast<size_t>(j)]) - b.row(row)[static_cast<size_t>(j)];
      of_row[static_cast<size_t>(row)] += off * off;
      of_head[static_cast<size_t>(std::min(j / head_size, a.last() / head_size - 1))] += off * off;
    }
  const auto chosen = [](const std::vector<double>& off, int64_t most) {
    const int64_t worst = (most + 2) / 3;
    std::vector<int64_t> out =
        most > worst ? sample_indices(static_cast<int64_t>(off.size()), most - worst) : std::vector<int64_t>{};
    std::vector<int64_t> order(off.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t x, int64_t y) { return off[static_cast<size_t>(x)] > off[static_cast<size_t>(y)]; });
    for (const int64_t i : order)
      if (static_cast<int64_t>(out.size()) < most && std::find(out.begin(), out.end(), i) == out.end())
        out.push_back(i);
    return out;
  };
  return {chosen(of_row, rows), chosen(of_head, heads)};
}

Attention::Attention(const AttentionInputs& inputs, const Values& target, int64_t head_size, AttentionSample sample)
    : in_(inputs), y_(target), d_(head_size), sample_(std::move(sample)) {
  for (size_t s = 0; s < in_.streams.size(); ++s) {
    begin_[s] = tokens_.all, count_[s] = in_.tokens_of(*in_.streams[s].v, d_);
    tokens_.all += count_[s];
  }
  tokens_.first_stream = count_[0];
  own_begin_ = begin_[static_cast<size_t>(in_.own)];
  most_made_ = static_cast<size_t>(std::clamp<int64_t>(kMadeElements / std::max<int64_t>(1, tokens_.all * d_), 4, 64));
}

int64_t Attention::work() const {
  constexpr int64_t kToMakeKeys = 20;  // of a number of k or v: its norm, its rotation
  return static_cast<int64_t>(sample_.heads.size()) * tokens_.all * d_ *
         (2 * static_cast<int64_t>(sample_.rows.size()) + kToMakeKeys);
}

double Attention::measure(const AttentionFormula& p) const {
  if (y_.last() % head_size(p)) return INFINITY;
  totals_by_key_.clear(), by_head_.clear(), earlier_.clear();
  std::map<std::pair<int64_t, int64_t>, Row> attended;
  Residual unexplained;
  for (const int64_t block : sample_.heads)
    for (const int64_t row : sample_.rows)
      for (int64_t column = block * d_; column < (block + 1) * d_; ++column) {
        const Place from = place(p, row, column);
        Row& got = attended[{from.head, from.token}];
        if (got.empty() && !attend(p, from.head, from.token, got)) return INFINITY;
        const double target = y_.row(row)[static_cast<size_t>(column)];
        unexplained.add(got[static_cast<size_t>(from.channel)], target);
      }
  return unexplained.relative();
}

std::vector<float> Attention::result(const AttentionFormula& p) const {
  if (y_.last() % head_size(p)) return {};
  totals_by_key_.clear(), by_head_.clear(), earlier_.clear();
  std::map<std::pair<int64_t, int64_t>, Row> attended;
  std::vector<float> out;
  out.reserve(y_.v.size());
  for (int64_t row = 0; row < y_.rows(); ++row)
    for (int64_t column = 0; column < y_.last(); ++column) {
      const Place from = place(p, row, column);
      Row& got = attended[{from.head, from.token}];
      if (got.empty() && !attend(p, from.head, from.token, got)) return {};
      out.push_back(static_cast<float>(got[static_cast<size_t>(from.channel)]));
    }
  return out;
}

Attention::Place Attention::place(const AttentionFormula& p, int64_t row, int64_t column) const {
  const int64_t d = head_size(p), count = heads(p), width = y_.last();
  Place out{column / d, own_begin_ + row, column % d};
  if (p.merge == HeadCut::kStrided) out.head = column % count, out.channel = column / count;
  if (p.merge == HeadCut::kByShape || p.merge == HeadCut::kByShapeJoint) {
    const bool joint = p.merge == HeadCut::kByShapeJoint;
    const int64_t tokens = joint ? tokens_.all : y_.rows(), at = (joint ? own_begin_ + row : row) * width + column;
    out = {at / (tokens * d), (joint ? 0 : own_begin_) + at / d % tokens, at % d};
  }
  if (p.row_shift) out.token = round_trip(out.token + p.row_shift, tokens_.all);
  if (p.merged_backwards) out.head = count - 1 - out.head;
  if (p.merged_shift) out.head = round_trip(out.head + p.merged_shift, count);
  return out;
}

int64_t Attention::key_head(const AttentionFormula& p, size_t stream, size_t operand, int64_t head) const {
  const OperandFormula& how = p.of[stream][operand];
  const int64_t all = heads(p);
  const int64_t groups = operand == 0 ? all : std::max<int64_t>(1, in_.key_heads(d_) * d_ / head_size(p));
  const int64_t own = head / std::max<int64_t>(1, all / groups);
  const int64_t group = how.groups == KeyGroups::kConsecutive ? own
                        : how.groups == KeyGroups::kTiled     ? head % groups
                        : how.groups == KeyGroups::kReversed  ? groups - 1 - own
                                                              : 0;
  return round_trip((how.repeat ? head / how.repeat : group) + how.head_shift, groups);
}

const Values* Attention::values(const OperandFormula& how, size_t stream) const {
  const AttentionStream& s = stream_of(how, stream);
  if (how.source == 0) return how.early ? s.early_q : s.q;
  if (how.source == 1) return how.early ? s.early_k : s.k;
  return s.v;
}

bool Attention::turned_block(const OperandFormula& how, size_t stream, int64_t head, int64_t token, int64_t position,
                             int64_t turned_head, Row& out) const {
  const Values* from = values(how, stream);
  if (!from) return false;
  const int64_t tokens = in_.tokens_of(*from, d_), width = from->size() / tokens, count = width / d_;
  if ((head + 1) * d_ > width || token >= tokens) return false;
  const float* row = from->v.data() + token * width;
  const Values* fused = how.fused == Fused::kParts ? nullptr : stream_of(how, stream).fused;
  if (fused)
    row = fused->v.data() + token * 3 * width;
  else if (how.fused != Fused::kParts)
    return false;
  out.resize(static_cast<size_t>(d_));
  for (int64_t j = 0; j < d_; ++j) {
    int64_t at = how.cut == HeadCut::kStrided ? j * count + head : head * d_ + j;
    if (fused) at = how.fused == Fused::kInTurn ? 3 * at + how.source : (3 * head + how.source) * d_ + j;
    out[static_cast<size_t>(j)] = in_format(row[at], how.held);
  }
  if (how.unit != Unit::kNone)
    make_unit(out, how.unit, how.unit == Unit::kRmsOfAllHeads ? rms({row, static_cast<size_t>(width)}) : 0);
  if (how.weight >= 0)
    for (int64_t j = 0; j < d_; ++j)
      out[static_cast<size_t>(j)] *= in_.norm_weights[static_cast<size_t>(how.weight)].second[static_cast<size_t>(j)];
  if (how.turning.rotation != Rotation::kNone && (how.turned_heads == 0 || turned_head < how.turned_heads)) {
    const size_t other = in_.streams.size() == 2 ? 1 - stream : stream;
    const RotaryTable* table = &stream_of(how, how.other_table ? other : stream).table;
    if (how.variant >= 0) table = &in_.variants().table(static_cast<size_t>(how.variant), stream);
    int64_t at = how.by_head ? turned_head : how.backwards ? tokens - 1 - position : position + how.shift;
    if (how.wraps) at = round_trip(at, tokens);
    if (how.repeats) at = round_trip(at, how.repeats);
    if (how.until) at = std::min<int64_t>(at, how.until - 1);
    if (how.joint_table) {
      at += begin_[stream];
      const bool of_image = at < count_[1];
      table = &in_.streams[of_image ? 1 : 0].table;
      if (!of_image) at -= count_[1];
    }
    if (!table->rotate(out, at, how.turning)) return false;
  }
  for (double& value : out) value = in_format(how.factor * value, how.held_turned);
  if (how.steps == Steps::kByRow) round_in_steps(out, largest_in(out), how.in_steps);
  return true;
}

bool Attention::make_row(const AttentionFormula& p, size_t operand, int64_t head, int64_t token, Row& out) const {
  if (const int shift = p.of[0][operand].token_shift) token = round_trip(token + shift, tokens_.all);
  const auto stream_of = [&](int64_t t) { return size_t{tokens_.is_first(t) ? 0U : 1U}; };
  const size_t stream = stream_of(token);
  const OperandFormula& how = p.of[stream][operand];
  int64_t local = token - begin_[stream];
  if (how.columns < 0) local = count_[stream] - 1 - local;
  if (how.columns > 0) {
    const int64_t rows = count_[stream] / how.columns;
    local = local % rows * how.columns + local / rows;
  }
  const int64_t own = key_head(p, stream, operand, head), size = head_size(p);
  if (size != d_) {
    // Rotated by the reference's heads, then cut into others.
    out.resize(static_cast<size_t>(size));
    Row block;
    int64_t made = -1;
    for (int64_t j = 0; j < size; ++j) {
      const int64_t channel = own * size + j;
      if (channel / d_ != made) {
        made = channel / d_;
        if (!turned_block(how, stream, made, local, local, made, block)) return false;
      }
      out[static_cast<size_t>(j)] = block[static_cast<size_t>(channel % d_)];
    }
    return true;
  }
  if (how.cut == HeadCut::kBlocks || how.cut == HeadCut::kStrided)
    return turned_block(how, stream, own, local, local, own, out);
  const Values* from = values(how, stream);
  if (!from) return false;
  const int64_t count = from->size() / in_.tokens_of(*from, d_) / d_;
  const bool joint = how.cut == HeadCut::kByShapeJoint;
  const int64_t tokens = joint ? tokens_.all : in_.tokens_of(*from, d_);
  const int64_t at = own * tokens + (joint ? token : local), source = at / count;
  const size_t source_stream = joint ? stream_of(source) : stream;
  const int64_t source_local = source - (joint ? begin_[source_stream] : 0);
  return turned_block(p.of[source_stream][operand], source_stream, at % count, source_local,
                      how.cut_first ? local : source_local, how.cut_first ? own : at % count, out);
}

std::shared_ptr<const Attention::Rows> Attention::all_rows(const AttentionFormula& p, size_t operand,
                                                           int64_t head) const {
  const std::array<OperandFormula, 2> how{p.of[0][operand], p.of[1][operand]};
  for (const Made& made : made_)
    if (made.operand == operand && made.head == head && made.head_size == head_size(p) && made.how == how)
      return made.rows;
  Rows rows(static_cast<size_t>(tokens_.all * head_size(p)));
  bool complete = true;
  Row row;
  for (int64_t t = 0; t < tokens_.all && complete; ++t) {
    // What is not looked at need not be there.
    const bool other = tokens_.is_first(t) != tokens_.is_first(own_begin_);
    if (!make_row(p, operand, head, t, row))
      complete = other && p.mask.streams == SeenStreams::kOwn;
    else
      std::copy(row.begin(), row.end(), rows.begin() + t * head_size(p));
  }
  if (complete) hold_in_steps(p, operand, rows);
  Made made{operand, head, head_size(p), how, complete ? std::make_shared<const Rows>(std::move(rows)) : nullptr};
  if (made_.size() < most_made_) return made_.emplace_back(std::move(made)).rows;
  // The first half stays: it is the reference's own formula, which most changes leave as it is.
  next_made_ = next_made_ + 1 < most_made_ ? next_made_ + 1 : most_made_ / 2;
  made_[next_made_] = std::move(made);
  return made_[next_made_].rows;
}

bool Attention::scores(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const {
  const int64_t d = head_size(p);
  const double scale = p.scale == 0 ? 1 / std::sqrt(static_cast<double>(d)) : p.scale;
  const auto k = all_rows(p, 1, head);
  Row q;
  if (!k || !query_row(p, head, query, q)) return false;
  out.assign(static_cast<size_t>(tokens_.all), -INFINITY);
  for (int64_t t = 0; t < tokens_.all; ++t) {
    const bool hidden = p.weighting != Weighting::kMaskedLate && is_hidden(p.mask, tokens_, query, t);
    double& score = out[static_cast<size_t>(t)];
    if (hidden && p.mask.hiding == Hiding::kInfinite) continue;
    score = scale * dot(q.data(), k->data() + t * d, d);
    if (p.cap > 0) score = p.cap * std::tanh(score / p.cap);
    score = in_format(score, p.scores);
    if (hidden)
      score = p.mask.hiding == Hiding::kAdded    ? score + p.mask.value
              : p.mask.hiding == Hiding::kZeroed ? 0
                                                 : p.mask.value;
  }
  return true;
}

// What each key's powers are divided by, where that is no sum over the keys.
bool Attention::totals(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const {
  out.assign(static_cast<size_t>(tokens_.all), 0);
  Row one;
  const auto add = [&](int64_t of_head, int64_t of_query) {
    if (!scores(p, of_head, of_query, one)) return false;
    for (size_t t = 0; t < one.size(); ++t) out[t] += std::exp(one[t]);
    return true;
  };
  if (p.weighting == Weighting::kOverHeads) {
    for (int64_t h = 0; h < heads(p); ++h)
      if (!add(h, query)) return false;
    return true;
  }
  if (tokens_.all > kMostQueries) return false;
  for (int64_t t = 0; t < tokens_.all; ++t)
    if (!add(head, t)) return false;
  return true;
}

bool Attention::weigh(const AttentionFormula& p, int64_t head, int64_t query, Row& w) const {
  if (w.empty()) return false;  // no key at all: what is taken for the values has not one whole token
  double largest = *std::max_element(w.begin(), w.end());
  if (largest == -INFINITY) {
    if (p.mask.empty == EmptyRow::kUnmasked) {
      AttentionFormula open = p;
      open.mask = {};
      return scores(open, head, query, w) && weigh(open, head, query, w);
    }
    std::fill(w.begin(), w.end(), p.mask.empty == EmptyRow::kMean ? 1 / static_cast<double>(w.size()) : 0);
    if (p.mask.empty == EmptyRow::kFirst) w[0] = 1;
    return true;
  }
  Row by_key;
  if (p.weighting == Weighting::kOverHeads && !totals(p, head, query, by_key)) return false;
  if (p.weighting == Weighting::kOverQueries) {
    Row& kept = totals_by_key_[head];
    if (kept.empty() && !totals(p, head, query, kept)) return false;
    by_key = kept;
  }
  std::array<double, 2> total{};
  for (int64_t t = 0; t < tokens_.all; ++t) {
    const size_t at = static_cast<size_t>(t), stream = tokens_.is_first(t) ? 0 : 1;
    const double score = w[at];
    w[at] = 0;
    if (score == -INFINITY) continue;
    double weight = 0;
    switch (p.weighting) {
      case Weighting::kPlain:
        weight = score;
        break;
      case Weighting::kRelu:
        weight = std::max(0.0, score);
        break;
      case Weighting::kSigmoid:
        weight = 1 / (1 + std::exp(-score));
        break;
      case Weighting::kOverQueries:
      case Weighting::kOverHeads:
        weight = std::exp(score) / by_key[at];
        break;
      case Weighting::kEqual:
        weight = 1;
        break;
      default:
        weight = p.counted[stream] * std::exp(score - largest);
    }
    total[stream] += weight;  // kernels that round for the product sum what was not rounded
    w[at] = in_format(weight, p.powers);
  }
  const bool divides = p.weighting == Weighting::kSoftmax || p.weighting == Weighting::kMaskedLate ||
                       p.weighting == Weighting::kTwice || p.weighting == Weighting::kEqual ||
                       p.weighting == Weighting::kByStream;
  if (p.weighting != Weighting::kByStream) total[0] = total[1] = total[0] + total[1];
  for (double& sum : total) sum += p.zero_keys * std::exp(-largest);
  const bool late = p.weighting == Weighting::kMaskedLate || p.mask.hiding == Hiding::kZeroed;
  for (int64_t t = 0; t < tokens_.all; ++t) {
    const size_t at = static_cast<size_t>(t), stream = tokens_.is_first(t) ? 0 : 1;
    if (divides) w[at] = total[stream] > 0 ? w[at] / total[stream] : 0;
    if (late && is_hidden(p.mask, tokens_, query, t))
      w[at] = p.mask.hiding == Hiding::kAdded ? w[at] + p.mask.value : 0;
  }
  if (p.weighting == Weighting::kTwice) {
    double sum = 0;
    for (double& weight : w) weight = std::exp(weight), sum += weight;
    for (double& weight : w) weight /= sum;
  }
  return true;
}

// What each query gives this one, taken for a key.
bool Attention::transposed_weights(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const {
  const size_t n = static_cast<size_t>(tokens_.all);
  if (tokens_.all > kMostQueries || query >= tokens_.all) return false;
  Row& all = by_head_[head];  // [queries, keys]
  if (all.empty()) {
    AttentionFormula plain = p;
    plain.weighting = Weighting::kSoftmax;
    Row one, made;
    for (int64_t t = 0; t < tokens_.all; ++t) {
      if (!scores(plain, head, t, one) || !weigh(plain, head, t, one)) return false;
      made.insert(made.end(), one.begin(), one.end());
    }
    all = std::move(made);
  }
  out.resize(n);
  for (size_t t = 0; t < n; ++t) out[t] = all[t * n + static_cast<size_t>(query)];
  return true;
}

bool Attention::attend(const AttentionFormula& p, int64_t head, int64_t query, Row& out) const {
  if (p.weighting == Weighting::kOverChannels) return attend_channels(p, head, query, out);
  if (p.weighting == Weighting::kAcrossHeads) return attend_heads(p, head, query, out);
  if (p.weighting == Weighting::kAcrossItems) return attend_items(p, head, query, out);
  if (p.keys_of_call) return attend_earlier(p, head, query, out);
  Row w;
  const auto v = all_rows(p, 2, head);
  const bool made = p.weighting == Weighting::kTransposed ? transposed_weights(p, head, query, w)
                                                          : scores(p, head, query, w) && weigh(p, head, query, w);
  if (!v || !made || (p.weighting == Weighting::kOwnValue && query >= tokens_.all)) return false;
  if (p.weighting == Weighting::kOwnValue) std::fill(w.begin(), w.end(), 0), w[static_cast<size_t>(query)] = 1;
  const int64_t d = head_size(p);
  out.assign(static_cast<size_t>(d), 0);
  for (int64_t t = 0; t < tokens_.all; ++t) {
    const double weight = p.result_factor * in_format(w[static_cast<size_t>(t)], p.weights);
    if (weight == 0) continue;
    const double* row = v->data() + t * d;
    for (int64_t j = 0; j < d; ++j) out[static_cast<size_t>(j)] += weight * row[j];
  }
  for (double& value : out) value = in_format(value, p.result);
  return true;
}

}  // namespace lockstep
