#include "diagnose/pointwise/channelwise_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "diagnose/case/thresholds.h"
#include "diagnose/search/functions.h"
#include "measure/residual.h"
#include "measure/small_solve.h"

namespace lockstep {
namespace {

struct VectorFunction {
  const char* name;
  double (*f)(double);
};
const VectorFunction kVectorFunctions[] = {
    {"", [](double v) { return v; }},
    {"tanh", [](double v) { return std::tanh(v); }},
    {"sigmoid", [](double v) { return sigmoid(v); }},
    {"SiLU", [](double v) { return v * sigmoid(v); }},
    {"exp", [](double v) { return std::exp(std::clamp(v, -60.0, 60.0)); }},
    {"square", [](double v) { return v * v; }},
    {"1/", [](double v) { return v == 0 ? 0 : 1 / v; }},
    {"1/(1 + .)", [](double v) { return v == -1 ? 0 : 1 / (1 + v); }},
    {"abs", [](double v) { return std::fabs(v); }},
};
constexpr int64_t kFewChannels = 24;  // with fewer, a free factor and offset fit by chance

// Round numbers that formulas are made of.
double snapped(double x, std::initializer_list<double> values) {
  for (const double value : values)
    if (std::fabs(x - value) <= kNearVector * std::max(1.0, std::fabs(value))) return value;
  return x;
}

// Is k the same function of v in every channel? Neighbours in value then differ by little, against how k varies; the
// few largest and smallest lie far apart and would drown the rest.
bool is_function(const std::vector<double>& k, const std::vector<float>& v) {
  if (static_cast<int64_t>(k.size()) < 2 * kFewChannels) return false;
  std::vector<size_t> order(k.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return v[a] < v[b]; });
  const size_t left_out = k.size() / 24;
  double steps = 0, sum = 0, squares = 0, n = 0;
  for (size_t i = left_out; i + left_out < k.size(); ++i) {
    const double value = k[order[i]];
    ++n, sum += value, squares += value * value;
    if (i > left_out) steps += (value - k[order[i - 1]]) * (value - k[order[i - 1]]);
  }
  const double variance = squares / n - sum / n * (sum / n);
  return variance > 0 && steps / (2 * n * variance) < 0.02;
}

// Right in a good part of the channels and one number in all the others.
bool is_right_in_part(const std::vector<double>& k, const std::vector<double>& right) {
  double low = INFINITY, high = -INFINITY, spread = 0;
  for (const double value : right) spread = std::max(spread, std::fabs(value - right[0]));
  size_t agree = 0;
  for (size_t j = 0; j < k.size(); ++j) {
    if (std::fabs(k[j] - right[j]) <= 5e-3 * spread)
      ++agree;
    else
      low = std::min(low, k[j]), high = std::max(high, k[j]);
  }
  return 5 * agree >= k.size() && agree < k.size() && high - low <= 5e-3 * spread;
}

}  // namespace

const Coefficient* ChannelFormula::of(int item) const {
  for (const Term& term : terms)
    if (term.item == item) return &term.coefficient;
  return nullptr;
}

ChannelSearch::ChannelSearch(Case& failing) : failing_(failing), items_(equal_size_items(failing, 9)) {
  axis_ = channel_axis(failing.name, failing.r.shape), item_ = worst_item(failing);
  y_[0] = rows(failing.r), y_[1] = rows(failing.c);
  channels_ = y_[0].last();
  for (const Item* item : items_) {
    Values r = failing.reference_of(*item), c = failing.candidate_of(*item);
    r.shape = c.shape = failing.r.shape;
    x_[0].push_back(rows(r)), x_[1].push_back(rows(c));
  }
  x_[1].push_back(y_[0]);
  words_ = vector_dictionary(failing, channels_);
}

bool ChannelSearch::possible() const {
  return channels_ >= 4 && y_[0].rows() >= 3;
}

Values ChannelSearch::rows(const Values& x) const {
  // Modulations belong to one batch item.
  const Values first = x.rank() >= 3 ? batch_item(x, item_, x.shape[0]) : x;
  return sampled(channels_last(first, axis_));
}

ChannelFormula ChannelSearch::best(bool candidate) const {
  ChannelFormula found;
  const int count = static_cast<int>(items_.size());
  const auto keep = [&](const ChannelFormula& next) {
    // A longer formula must be better by far.
    if (next.residual < (next.terms.size() > found.terms.size() && !found.terms.empty() ? 0.3 : 1) * found.residual)
      found = next;
  };
  for (int i = 0; i < count; ++i) keep(fit({i}, candidate));
  if (failing_.explains(found.residual)) return found;
  for (int i = 0; i < count; ++i)
    for (int j = i + 1; j < count; ++j) keep(fit({i, j}, candidate));
  if (failing_.explains(found.residual) || y_[0].rows() < 8) return found;
  const int few = std::min(count, 5);
  for (int i = 0; i < few; ++i)
    for (int j = i + 1; j < few; ++j)
      for (int k = j + 1; k < few; ++k) keep(fit({i, j, k}, candidate));
  return found;
}

ChannelFormula ChannelSearch::best_from_reference() const {
  const int own = static_cast<int>(items_.size());
  ChannelFormula found = fit({own}, true);
  if (failing_.explains_candidate(found.residual)) return found;
  for (int i = 0; i < own; ++i)
    if (const ChannelFormula next = fit({own, i}, true); next.residual < 0.5 * found.residual && next.of(own))
      found = next;
  return found;
}

double ChannelSearch::value(const Coefficient& k, bool candidate, size_t channel, Format coarse, bool before) const {
  if (!k.is_vector()) return k.constant;
  if (k.table >= 0) return tables_[static_cast<size_t>(k.table)][channel];
  const NamedVector& word = words_[static_cast<size_t>(k.vector)];
  const double scaled = k.factor * kVectorFunctions[k.function].f((candidate ? word.c : word.r)[channel]);
  return before ? in_format(scaled, coarse) + k.offset : in_format(scaled + k.offset, coarse);
}

double ChannelSearch::value(const ChannelFormula& formula, const Coefficient& k, bool candidate, size_t channel,
                            Format coarse, bool before) const {
  const double other =
      k.times < 0 ? 1
                  : value(formula.terms[static_cast<size_t>(k.times)].coefficient, candidate, channel, coarse, before);
  return value(k, candidate, channel, coarse, before) * other;
}

std::vector<std::pair<std::string, Values>> ChannelSearch::all_equal_sized() const {
  std::vector<std::pair<std::string, Values>> out;
  const auto most = std::clamp<int64_t>((int64_t{1} << 25) / std::max<int64_t>(1, failing_.r.size()), 9, 48);
  for (const Item* item : equal_size_items(failing_, static_cast<size_t>(most))) {
    Values c = failing_.candidate_of(*item);
    c.shape = failing_.r.shape;
    out.emplace_back(item->label(), rows(c));
  }
  return out;
}

double ChannelSearch::residual(const ChannelFormula& formula, bool candidate, const Coarse& coarse) const {
  const Values& y = y_[candidate];
  Residual unexplained;
  std::vector<double> k(formula.terms.size());
  for (int64_t j = 0; j < channels_; ++j) {
    const size_t channel = static_cast<size_t>(j);
    for (size_t t = 0; t < k.size(); ++t)
      k[t] = value(formula, formula.terms[t].coefficient, candidate, channel, coarse.terms, coarse.before);
    const double b = value(formula, formula.offset, candidate, channel, coarse.offset, coarse.before);
    for (int64_t i = 0; i < y.rows(); ++i) {
      const size_t at = static_cast<size_t>(i * channels_ + j);
      double sum = b;
      for (size_t t = 0; t < k.size(); ++t)
        sum += k[t] * x_[candidate][static_cast<size_t>(formula.terms[t].item)].v[at];
      unexplained.add(sum, y.v[at]);
    }
  }
  return unexplained.relative();
}

std::pair<Values, Values> ChannelSearch::implied(const ChannelFormula& formula, size_t term) const {
  const Values& y = y_[1];
  Values mine = make_values({y.rows(), channels_});
  for (int64_t j = 0; j < channels_; ++j) {
    const size_t channel = static_cast<size_t>(j);
    const double own = value(formula, formula.terms[term].coefficient, true, channel);
    for (int64_t i = 0; i < y.rows(); ++i) {
      const size_t at = static_cast<size_t>(i * channels_ + j);
      double rest = y.v[at] - value(formula, formula.offset, true, channel);
      for (size_t t = 0; t < formula.terms.size(); ++t)
        if (t != term)
          rest -= value(formula, formula.terms[t].coefficient, true, channel) *
                  x_[1][static_cast<size_t>(formula.terms[t].item)].v[at];
      mine.v[at] = static_cast<float>(own == 0 ? 0 : rest / own);
    }
  }
  return {std::move(mine), x_[1][static_cast<size_t>(formula.terms[term].item)]};
}

std::string ChannelSearch::words(const Coefficient& k) const {
  if (!k.is_vector()) return number(k.constant);
  std::string out = words_[static_cast<size_t>(k.vector)].name;
  if (k.table >= 0) return fmt::format("(something made of {})", out);
  if (k.function) out = fmt::format("{}({})", kVectorFunctions[k.function].name, out);
  if (k.factor == -1)
    out = "-" + out;
  else if (k.factor != 1)
    out = number(k.factor) + " " + out;
  if (k.offset != 0) out = fmt::format("({} + {})", number(k.offset), out);
  if (k.times >= 0) out += " (before it is scaled)";
  return out;
}

std::string ChannelSearch::label(int item) const {
  return is_reference(item) ? "the reference's tensor" : items_[static_cast<size_t>(item)]->label();
}

std::string ChannelSearch::words(const ChannelFormula& formula) const {
  std::string out;
  for (const ChannelFormula::Term& term : formula.terms) {
    if (!out.empty()) out += " + ";
    out += term.coefficient.is(1) ? label(term.item) : label(term.item) + " * " + words(term.coefficient);
  }
  if (!formula.offset.is(0)) out += " + " + words(formula.offset);
  return out.empty() ? "0" : out;
}

std::optional<ChannelSearch::Solved> ChannelSearch::solve(const std::vector<int>& chosen, bool candidate) const {
  const size_t n = chosen.size() + 1;  // and the offset
  const Values& y = y_[candidate];
  if (y.rows() < static_cast<int64_t>(n) + 1) return std::nullopt;
  Solved k(n, std::vector<double>(static_cast<size_t>(channels_)));
  std::vector<double> gram(n * n), right(n), basis(n, 1);
  double left = 0, yy = 0;
  for (int64_t j = 0; j < channels_; ++j) {
    std::fill(gram.begin(), gram.end(), 0), std::fill(right.begin(), right.end(), 0);
    double own = 0;
    for (int64_t i = 0; i < y.rows(); ++i) {
      const size_t at = static_cast<size_t>(i * channels_ + j);
      for (size_t t = 0; t + 1 < n; ++t) basis[t] = x_[candidate][static_cast<size_t>(chosen[t])].v[at];
      for (size_t a = 0; a < n; ++a) {
        for (size_t b = 0; b < n; ++b) gram[a * n + b] += basis[a] * basis[b];
        right[a] += basis[a] * y.v[at];
      }
      own += static_cast<double>(y.v[at]) * y.v[at];
    }
    std::vector<double> solved = right;
    if (!solve_symmetric(gram, solved, n)) return std::nullopt;
    yy += own;
    for (size_t t = 0; t < n; ++t) k[t][static_cast<size_t>(j)] = solved[t], own -= solved[t] * right[t];
    left += std::max(0.0, own);
  }
  // Even free coefficients leave too much: no need to name them.
  if (!(yy > 0) || std::sqrt(left / yy) > std::max(0.05, 4 * failing_.tolerance)) return std::nullopt;
  return k;
}

double ChannelSearch::size_of(bool candidate) const {
  return rms(y_[candidate].v);
}

// Not only near it as a whole: what varies from channel to channel is the vector's.
bool ChannelSearch::is_close(const Coefficient& known, const std::vector<double>& k) const {
  double dd = 0, sum = 0, squares = 0;
  for (size_t j = 0; j < k.size(); ++j) {
    const double d = value(known, true, j) - k[j];
    dd += d * d, sum += k[j], squares += k[j] * k[j];
  }
  const double n = static_cast<double>(k.size());
  return dd <= 1e-3 * std::max(0.0, squares - sum * sum / n) || (!known.is_vector() && dd <= 1e-6 * squares);
}

// The right vector with a share of another one: k = a u + b v + c.
bool ChannelSearch::is_mixture(const std::vector<double>& k, size_t right) const {
  if (static_cast<int64_t>(k.size()) < 2 * kFewChannels) return false;
  const auto about_mean = [&](auto&& at) {
    std::vector<double> out(k.size());
    double sum = 0;
    for (size_t j = 0; j < out.size(); ++j) out[j] = at(j), sum += out[j];
    for (double& value : out) value -= sum / static_cast<double>(out.size());
    return out;
  };
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  const std::vector<double> y = about_mean([&](size_t j) { return k[j]; }),
                            u = about_mean([&](size_t j) { return words_[right].c[j]; });
  const double uu = dot(u, u), uy = dot(u, y), yy = dot(y, y);
  for (size_t w = 0; w < words_.size(); ++w) {
    if (w == right) continue;
    const std::vector<double> v = about_mean([&](size_t j) { return words_[w].c[j]; });
    const double vv = dot(v, v), uv = dot(u, v), vy = dot(v, y), determinant = uu * vv - uv * uv;
    if (!(determinant > 1e-6 * uu * vv)) continue;
    const double a = (uy * vv - vy * uv) / determinant, b = (vy * uu - uy * uv) / determinant;
    if (yy - a * uy - b * vy < 1e-3 * yy && std::fabs(a) > 0.01 && std::fabs(b) > 0.01) return true;
  }
  return false;
}

ChannelFormula ChannelSearch::best_reading(const ChannelFormula& reference) {
  std::vector<int> chosen;
  for (const ChannelFormula::Term& term : reference.terms) chosen.push_back(term.item);
  const auto solved = solve(chosen, true);
  if (!solved) return {};
  const VectorSources sources(failing_, channels_);
  const auto name = [&](const std::vector<double>& k, const Coefficient& right,
                        double small) -> std::optional<Coefficient> {
    const auto known = recognise(k, true, small);
    if (known && is_close(*known, k)) return known;
    const auto reading = sources.find(k);
    std::vector<double> wanted(k.size());
    for (size_t j = 0; j < k.size(); ++j) wanted[j] = value(right, true, j);
    if (!reading && right.is_vector() &&
        (is_right_in_part(k, wanted) || is_function(k, words_[static_cast<size_t>(right.vector)].c) ||
         is_mixture(k, static_cast<size_t>(right.vector)))) {
      tables_.push_back(k);
      Coefficient out = right;
      out.table = static_cast<int>(tables_.size()) - 1;
      return out;
    }
    if (!reading) return known;
    std::vector<float> values = sources.values(*reading);
    words_.push_back({sources.words(*reading), values, values});
    Coefficient out{.vector = static_cast<int>(words_.size()) - 1};
    out.factor = reading->sign, out.offset = reading->offset;
    return out;
  };
  ChannelFormula out;
  for (size_t t = 0; t < chosen.size(); ++t) {
    const auto known = name((*solved)[t], reference.terms[t].coefficient, 0.05);
    if (!known) return {};
    out.terms.push_back({chosen[t], *known});
  }
  const auto offset = name(solved->back(), reference.offset, 0.02 * size_of(true));
  if (!offset) return {};
  out.offset = *offset;
  out.residual = residual(out, true);
  return out;
}

ChannelFormula ChannelSearch::fit(const std::vector<int>& chosen, bool candidate) const {
  const size_t n = chosen.size() + 1;
  ChannelFormula out;
  const auto solved = solve(chosen, candidate);
  if (!solved) return out;
  const Solved& k = *solved;
  const double scale = size_of(candidate);  // an offset small against the rest is none
  for (size_t t = 0; t + 1 < n; ++t) {
    const auto known = recognise(k[t], candidate, 0.05);
    if (!known) return ChannelFormula{};
    out.terms.push_back({chosen[t], *known});
  }
  auto offset = recognise(k[n - 1], candidate, 0.02 * scale);
  if (!offset) {  // perhaps added before a factor was applied
    for (size_t t = 0; t < out.terms.size() && !offset; ++t) {
      if (!out.terms[t].coefficient.is_vector()) continue;
      std::vector<double> divided = k[n - 1];
      for (size_t j = 0; j < divided.size(); ++j) {
        const double by = value(out.terms[t].coefficient, candidate, j);
        divided[j] = by == 0 ? 0 : divided[j] / by;
      }
      offset = recognise(divided, candidate, 0.02 * scale);
      if (offset && offset->is_vector()) offset->times = static_cast<int>(t);
    }
    if (!offset) return ChannelFormula{};
  }
  out.offset = *offset;
  if (out.offset.times < 0) std::erase_if(out.terms, [](const auto& term) { return term.coefficient.is(0); });
  if (!out.terms.empty()) out.residual = residual(out, candidate);
  return out;
}

// The constant, or the named vector, that these coefficients are.
std::optional<Coefficient> ChannelSearch::recognise(const std::vector<double>& k, bool candidate, double small) const {
  const double n = static_cast<double>(k.size());
  double sum = 0, squares = 0;
  for (const double value : k) sum += value, squares += value * value;
  const double mean = sum / n, size = std::sqrt(squares / n),
               spread = std::sqrt(std::max(0.0, squares / n - mean * mean));
  if (size < small) return Coefficient{};
  std::optional<Coefficient> best;
  double error = 0.08 * std::max(size, small);
  if (spread < kNearVector * std::fabs(mean)) {
    best = Coefficient{.constant = std::fabs(mean - std::round(mean)) < kNearVector ? std::round(mean) : mean};
    error = spread + 1e-9;
    if (spread < 1e-3 * std::fabs(mean)) return best;  // what is left is noise: no vector is needed to explain it
  }
  // What a factor and an offset leave must be small against what varies, too.
  const auto consider = [&](Coefficient next, double handicap) {
    double dd = 0;
    for (size_t j = 0; j < k.size(); ++j) {
      const double d = value(next, candidate, j) - k[j];
      dd += d * d;
    }
    if (std::sqrt(dd / n) * handicap < 0.8 * error) best = next, error = std::sqrt(dd / n) * handicap;
  };
  for (size_t w = 0; w < words_.size(); ++w) {
    const std::vector<float>& v = candidate ? words_[w].c : words_[w].r;
    for (int f = 0; f < static_cast<int>(std::size(kVectorFunctions)); ++f) {
      double sx = 0, sxx = 0, sxy = 0;
      for (size_t j = 0; j < k.size(); ++j) {
        const double x = kVectorFunctions[f].f(v[j]);
        sx += x, sxx += x * x, sxy += x * k[j];
      }
      const double variance = sxx - sx * sx / n, covariance = sxy - sx * sum / n;
      if (!(variance > 1e-9 * sxx)) continue;
      const double left = spread * spread * n - covariance * covariance / variance;
      if (left > 0.1 * spread * spread * n) continue;  // not this vector, whatever factor and offset
      const double factor = covariance / variance, offset = (sum - factor * sx) / n;
      Coefficient next{.vector = static_cast<int>(w), .function = f};
      next.factor = snapped(factor, {1, -1, 2, 0.5, -2}), next.offset = snapped(offset, {0, 1, -1, 2});
      const double plain = f == 0 ? 1 : 1.5;
      consider(next, plain);
      if ((next.factor != 1 && next.factor != -1) || (next.offset != 0 && next.offset != 1)) {
        // The usual forms first: they need no luck.
        for (const double usual_offset : {0.0, 1.0})
          for (const double usual : {1.0, -1.0}) {
            Coefficient form = next;
            form.factor = usual, form.offset = usual_offset;
            consider(form, plain);
          }
        if (static_cast<int64_t>(k.size()) >= kFewChannels) {
          next.factor = factor, next.offset = snapped(offset, {0, 1});
          consider(next, 2 * plain);
          next.offset = offset;
          consider(next, 3 * plain);
        }
      }
    }
  }
  return best;
}

}  // namespace lockstep
