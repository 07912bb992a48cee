// combined = uncond + s (cond - uncond), then each token scaled back to the length of cond, or not.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "compare/families/fit.h"
#include "compare/families/number_formats.h"

namespace lockstep {
namespace {

// What shares one factor: nothing does, the whole, each item of a batch, each token, each channel, each pixel of a
// patch.
enum class Sharing { kNone, kWhole, kItem, kToken, kChannel, kPixel };
enum class Length {
  kRoot,
  kDeviation,
  kSum,
  kLargest
};                                                   // root of the squares, of the centred ones; of absolute values
using Lengths = std::array<std::vector<double>, 4>;  // for each kind of length, one for each group
enum class Of { kOwn, kCond, kUncond };
// What is held in a poorer format: nothing, the two predictions, every step, the combination.
enum class HeldIn { kNone, kInputs, kSteps, kResult };

struct Params {
  double s = 1;
  Sharing span = Sharing::kNone;
  bool known = true;  // the factor is (length of `over` / length of `under`) ^ power, held and blended
  Length length = Length::kRoot;
  Of over = Of::kCond, under = Of::kOwn;
  double power = 1;
  double most = INFINITY, least = 0;  // bounds of the factor
  double blend = 1;                   // share of the rescaled in the result
  double times = 1;                   // all of it multiplied with
  std::vector<double> factors;        // where it is not known: one for each group
  Format format = nullptr;
  HeldIn held = HeldIn::kNone;
  double residual = INFINITY;
};

std::string formula(const Params& p) {
  static const char* const kSpans[] = {"",           "the whole",    "each item of the batch",
                                       "each token", "each channel", "each pixel"};
  static const char* const kLengths[] = {"length", "deviation", "sum of absolute values", "largest value"};
  static const char* const kOf[] = {"the combination", "cond", "uncond"};
  static const char* const kHeld[] = {"", ", cond and uncond in ", ", every step in ", ", the combination in "};
  std::string out = fmt::format("uncond + {} (cond - uncond)", number(p.s));
  if (p.span != Sharing::kNone) {
    out += fmt::format(", {} times ", kSpans[static_cast<size_t>(p.span)]);
    if (p.known) {
      out += fmt::format("the {} of {} over that of {}", kLengths[static_cast<size_t>(p.length)],
                         kOf[static_cast<size_t>(p.over)], kOf[static_cast<size_t>(p.under)]);
      if (p.power != 1) out += fmt::format(" to the power {}", number(p.power));
      if (std::isfinite(p.most)) out += fmt::format(", at most {}", number(p.most));
      if (p.least > 0) out += fmt::format(", at least {}", number(p.least));
      if (p.blend != 1) out += fmt::format(", {} of it with the rest unscaled", number(p.blend));
      if (p.times != 1) out += fmt::format(", and {}", number(p.times));
    } else {
      out += p.factors.size() == 1 ? number(p.factors[0]) : "a factor of its own";
    }
  }
  return out + (p.format ? std::string(kHeld[static_cast<size_t>(p.held)]) + p.format->name : "");
}

std::vector<double> ratios(const std::vector<double>& over, const std::vector<double>& under) {
  std::vector<double> out(over.size(), 1);
  for (size_t g = 0; g < out.size(); ++g)
    if (under[g] > 0 && over[g] > 0) out[g] = over[g] / under[g];
  return out;
}

// The two predictions, [batch, tokens, channels], and what shares a factor in them.
class Mix {
 public:
  Mix(Values cond, Values uncond, int64_t batch) : a_(std::move(cond)), b_(std::move(uncond)), batch_(batch) {}

  bool has(Sharing span) const {
    return span == Sharing::kItem ? batch_ > 1 : span == Sharing::kPixel ? a_.last() % 4 == 0 && a_.last() >= 16 : true;
  }
  size_t groups(Sharing span) const {
    switch (span) {
      case Sharing::kItem:
        return static_cast<size_t>(batch_);
      case Sharing::kToken:
        return static_cast<size_t>(a_.rows());
      case Sharing::kChannel:
        return static_cast<size_t>(a_.last() * batch_);
      case Sharing::kPixel:
        return static_cast<size_t>(a_.rows() * 4);
      default:
        return 1;
    }
  }
  // f(group, element) for all elements.
  template <typename Function>
  void each(Sharing span, Function&& f) const {
    const size_t width = static_cast<size_t>(a_.last()), rows = static_cast<size_t>(a_.rows());
    const size_t rows_of_item = rows / static_cast<size_t>(batch_);
    for (size_t row = 0; row < rows; ++row) {
      const size_t item = row / rows_of_item;
      const size_t base = span == Sharing::kItem      ? item
                          : span == Sharing::kToken   ? row
                          : span == Sharing::kChannel ? item * width
                          : span == Sharing::kPixel   ? row * 4
                                                      : 0;
      // The group of column j is base + (j & mask).
      const size_t mask = span == Sharing::kChannel ? SIZE_MAX : span == Sharing::kPixel ? 3 : 0;
      for (size_t j = 0; j < width; ++j) f(base + (j & mask), row * width + j);
    }
  }
  // Every kind of length of every group, in one pass.
  Lengths lengths(const Values& x, Sharing span) const {
    const size_t n = groups(span);
    std::vector<double> sum(n), squares(n), absolute(n), largest(n), count(n);
    each(span, [&](size_t g, size_t i) {
      const double value = x.v[i];
      sum[g] += value, squares[g] += value * value, absolute[g] += std::fabs(value), ++count[g];
      largest[g] = std::max(largest[g], std::fabs(value));
    });
    std::vector<double> root(n), deviation(n);
    for (size_t g = 0; g < n; ++g) {
      root[g] = std::sqrt(squares[g]);
      deviation[g] = std::sqrt(std::max(0.0, squares[g] - sum[g] * sum[g] / count[g]));
    }
    return {std::move(root), std::move(deviation), std::move(absolute), std::move(largest)};
  }
  // Before anything is rescaled.
  Values combined(const Params& p) const {
    Values out = a_;
    const Format inputs = p.held == HeldIn::kInputs || p.held == HeldIn::kSteps ? p.format : nullptr,
                 steps = p.held == HeldIn::kSteps ? p.format : nullptr;
    for (size_t i = 0; i < out.v.size(); ++i) {
      const double x = in_format(a_.v[i], inputs), y = in_format(b_.v[i], inputs);
      const double guided = in_format(p.s * in_format(x - y, steps), steps);
      out.v[i] = static_cast<float>(in_format(y + guided, p.held == HeldIn::kInputs ? nullptr : p.format));
    }
    return out;
  }
  Lengths lengths(Of which, const Values& own, Sharing span) const {
    return lengths(which == Of::kOwn ? own : which == Of::kCond ? a_ : b_, span);
  }
  Values result(const Params& p) const {
    Values out = combined(p);
    if (p.span == Sharing::kNone) return out;
    std::vector<double> factors = p.factors;
    if (p.known) {
      const auto kind = static_cast<size_t>(p.length);
      factors = ratios(lengths(p.over, out, p.span)[kind], lengths(p.under, out, p.span)[kind]);
      for (double& factor : factors)
        factor = p.times * (p.blend * std::clamp(std::pow(factor, p.power), p.least, p.most) + 1 - p.blend);
    }
    if (factors.size() != groups(p.span)) return out;
    each(p.span, [&](size_t g, size_t i) { out.v[i] = static_cast<float>(out.v[i] * factors[g]); });
    return out;
  }
  // Group by group y = p cond + q uncond; s = p / (p + q) whatever the group was multiplied with.
  double solve_scale(const Values& y, Sharing span) const {
    const size_t n = groups(span);
    std::vector<double> aa(n), ab(n), bb(n), ay(n), by(n), yy(n);
    each(span, [&](size_t g, size_t i) {
      const double a = a_.v[i], b = b_.v[i], t = y.v[i];
      aa[g] += a * a, ab[g] += a * b, bb[g] += b * b, ay[g] += a * t, by[g] += b * t, yy[g] += t * t;
    });
    double weighted = 0, weight = 0;
    for (size_t g = 0; g < n; ++g) {
      const double det = aa[g] * bb[g] - ab[g] * ab[g];
      if (!(det > 1e-9 * aa[g] * bb[g])) continue;
      const double p = (ay[g] * bb[g] - by[g] * ab[g]) / det, q = (by[g] * aa[g] - ay[g] * ab[g]) / det;
      // How well the group says what s is: by the size of its difference of the two.
      const double sure = yy[g] * det / (aa[g] * bb[g]);
      if (std::fabs(p + q) > 1e-6) weighted += sure * p / (p + q), weight += sure;
    }
    return weight > 0 ? weighted / weight : 1;
  }
  const Values& cond() const { return a_; }
  const Values& uncond() const { return b_; }

 private:
  Values a_, b_;
  int64_t batch_;
};

double residual_of(const Params& p, const Mix& mix, const Values& y) {
  return squared_norm(y.v) > 0 ? relative_error(mix.result(p).v, y.v) : INFINITY;
}

// The factors that y has beside the combination, and what is left then.
std::vector<double> factors_of(const Values& y, const Values& own, const Mix& mix, Sharing span, double& residual) {
  std::vector<double> xy(mix.groups(span)), xx(xy.size()), out(xy.size());
  mix.each(span, [&](size_t g, size_t i) {
    xy[g] += static_cast<double>(own.v[i]) * y.v[i], xx[g] += static_cast<double>(own.v[i]) * own.v[i];
  });
  for (size_t g = 0; g < out.size(); ++g) out[g] = xx[g] > 0 ? xy[g] / xx[g] : 0;
  double dd = 0;
  mix.each(span, [&](size_t g, size_t i) {
    const double d = out[g] * own.v[i] - y.v[i];
    dd += d * d;
  });
  residual = std::sqrt(dd / std::max(1e-300, squared_norm(y.v)));
  return out;
}

double misfit(const std::vector<double>& a, const std::vector<double>& b) {
  double dd = 0, bb = 0;
  for (size_t g = 0; g < a.size(); ++g) dd += (a[g] - b[g]) * (a[g] - b[g]), bb += b[g] * b[g];
  return std::sqrt(dd / std::max(1e-300, bb));
}

// Which ratio of lengths the factors are.
bool name_factors(Params& p, const std::vector<double>& factors, const Mix& mix, const Values& own, double near) {
  const double most = *std::max_element(factors.begin(), factors.end()),
               least = *std::min_element(factors.begin(), factors.end());
  constexpr std::pair<Of, Of> kRatios[] = {{Of::kCond, Of::kOwn},    {Of::kUncond, Of::kOwn},  {Of::kOwn, Of::kCond},
                                           {Of::kCond, Of::kUncond}, {Of::kUncond, Of::kCond}, {Of::kOwn, Of::kUncond}};
  std::array<Lengths, 3> lengths;
  for (const Of which : {Of::kOwn, Of::kCond, Of::kUncond})
    lengths[static_cast<size_t>(which)] = mix.lengths(which, own, p.span);
  for (const double power : {1.0, 2.0, 0.5})
    for (const Length length : {Length::kRoot, Length::kDeviation, Length::kSum, Length::kLargest})
      for (const auto& [over, under] : kRatios) {
        Params q = p;
        q.length = length, q.over = over, q.under = under, q.power = power;
        const auto of = [&](Of which) -> const std::vector<double>& {
          return lengths[static_cast<size_t>(which)][static_cast<size_t>(length)];
        };
        std::vector<double> ratio = ratios(of(over), of(under));
        if (power != 1)
          for (double& value : ratio) value = std::pow(value, power);
        const auto matches = [&](auto&& change) {
          std::vector<double> changed = ratio;
          for (double& value : changed) value = change(value);
          return misfit(changed, factors) <= near;
        };
        if (matches([](double x) { return x; })) return p = q, true;
        // Held from above or below: several groups share the bound then.
        const auto at = [&](double bound) {
          return std::count_if(factors.begin(), factors.end(), [&](double f) { return std::fabs(f - bound) <= near; });
        };
        if (factors.size() > 3 && at(most) > 1 && matches([&](double x) { return std::min(x, most); }))
          return q.most = most, p = q, true;
        if (factors.size() > 3 && at(least) > 1 && matches([&](double x) { return std::max(x, least); }))
          return q.least = least, p = q, true;
        if (factors.size() > 3 && power == 1) {
          double both = 0, squares = 0;
          for (size_t g = 0; g < factors.size(); ++g) both += ratio[g] * factors[g], squares += ratio[g] * ratio[g];
          const double times = squares > 0 ? both / squares : 1;
          if (matches([&](double x) { return times * x; })) return q.times = times, p = q, true;
        }
        double top = 0, bottom = 0;  // factor - 1 = blend (ratio - 1)
        for (size_t g = 0; g < factors.size(); ++g)
          top += (ratio[g] - 1) * (factors[g] - 1), bottom += (ratio[g] - 1) * (ratio[g] - 1);
        const double blend = bottom > 0 ? std::round(top / bottom * 1000) / 1000 : 0;
        const bool sure = factors.size() > 3 || std::fabs(blend * 20 - std::round(blend * 20)) < 1e-6;
        if (sure && power == 1 && blend > 0.01 && blend < 1 && matches([&](double x) { return blend * x + 1 - blend; }))
          return q.blend = blend, p = q, true;
      }
  return false;
}

Params fit(const Mix& mix, const Values& y, double tolerance) {
  Params best;
  for (const Sharing span :
       {Sharing::kNone, Sharing::kWhole, Sharing::kItem, Sharing::kToken, Sharing::kChannel, Sharing::kPixel}) {
    if (!mix.has(span)) continue;
    Params p;
    p.span = span, p.s = mix.solve_scale(y, span);
    const double rounded = std::round(p.s * 1000) / 1000;
    if (std::fabs(rounded - p.s) < 2e-3) p.s = rounded;
    const Values own = mix.combined(p);
    if (span != Sharing::kNone) {
      double residual = INFINITY;
      std::vector<double> factors = factors_of(y, own, mix, span, residual);
      if (residual > 0.03 || factors.size() * 4 > y.v.size()) continue;
      if (!name_factors(p, factors, mix, own, std::max(1e-5, 3 * std::max(tolerance, residual))))
        p.known = false, p.factors = std::move(factors);
    }
    p.residual = residual_of(p, mix, y);
    // A formula is worth more than numbers, and few numbers more than many.
    if (p.residual < (p.known ? 0.5 : 0.1) * best.residual ||
        (p.known && !best.known && p.residual < 2 * best.residual))
      best = std::move(p);
  }
  return best;
}

// y = p cond + q uncond, as it stands; or token by token.
std::string plain_words(const Values& a, const Values& b, const Values& y, bool by_token, double& residual) {
  double dd = 0;
  std::vector<double> k;
  const auto part = [&](std::span<const float> x, std::span<const float> z, std::span<const float> t) {
    k = least_squares({x, z}, t);
    for (size_t i = 0; i < t.size(); ++i) {
      const double d = k[0] * x[i] + k[1] * z[i] - t[i];
      dd += d * d;
    }
  };
  if (by_token)
    for (int64_t i = 0; i < y.rows(); ++i) part(a.row(i), b.row(i), y.row(i));
  else
    part(a.v, b.v, y.v);
  residual = std::sqrt(dd / std::max(1e-300, squared_norm(y.v)));
  return by_token ? "each token p cond + q uncond with p and q of its own"
                  : fmt::format("{} cond + {} uncond", number(k[0]), number(k[1]));
}

// The predictions of both passes and what was made of them, on one side.
struct Side {
  Values cond, uncond, y;  // [rows, channels]
};

void judge(Case& failing, Findings& out, const Side& theirs, const Side& mine, int64_t batch,
           const std::string& where) {
  const Mix of_r(theirs.cond, theirs.uncond, batch), of_c(mine.cond, mine.uncond, batch);
  const Values &yr = theirs.y, &yc = mine.y;
  const Params r = fit(of_r, yr, failing.tolerance);
  if (!r.known || !failing.explains(r.residual)) return;
  const double with_reference = residual_of(r, of_c, yc);
  if (failing.note_local(with_reference)) return;
  const Params c = fit(of_c, yc, failing.tolerance);
  Finding finding{"",
                  fmt::format("reference: {}; yours{}: {}", formula(r), where, formula(c)),
                  "",
                  "",
                  r.residual,
                  c.residual,
                  c.known ? 0.7 : 1.1,
                  0,
                  Blame::kNone};
  if (!failing.explains_candidate(c.residual) || !failing.is_better(c.residual, with_reference) || !c.known)
    for (const NumberFormat& format : half_formats())
      for (const HeldIn held : {HeldIn::kInputs, HeldIn::kSteps, HeldIn::kResult}) {
        Params p = r;
        p.format = &format, p.held = held, p.residual = residual_of(p, of_c, yc);
        if (!failing.explains_candidate(p.residual) || !failing.is_better(p.residual, with_reference)) continue;
        out.push_back({format.cause, fmt::format("reference: {}; yours: {}", formula(r), formula(p)),
                       "combine the two predictions in f32", "", r.residual, p.residual, 0.9, 0, Blame::kNone});
        return;
      }
  if (!failing.explains_candidate(c.residual)) {
    for (const bool by_token : {false, true}) {
      double residual = INFINITY;
      const std::string words = plain_words(of_c.cond(), of_c.uncond(), yc, by_token, residual);
      if ((by_token && yc.last() < 16) || !failing.explains_candidate(residual) ||
          !failing.is_better(residual, with_reference))
        continue;
      finding.cause = "guidance.scale", finding.residual = residual, finding.complexity = by_token ? 1.3 : 0.7;
      finding.explanation = fmt::format("reference: {}; yours: {}", formula(r), words);
      finding.fix = "combine the two predictions as the reference does";
      out.push_back(std::move(finding));
      return;
    }
    return;
  }
  if (!failing.is_better(c.residual, with_reference)) return;
  const bool same_rescale = c.span == r.span && c.known && c.length == r.length && c.over == r.over &&
                            c.under == r.under && c.power == r.power && c.blend == r.blend && c.most == r.most &&
                            c.least == r.least;
  // All of the right result times one factor: that is said more plainly elsewhere.
  const bool whole_factor = r.span == Sharing::kNone && c.span == Sharing::kWhole && !c.known;
  if (((same_rescale && c.times != r.times) || whole_factor) && std::fabs(c.s - r.s) <= 1e-3 * std::fabs(r.s)) return;
  // Exchanged passes read as s' = 1 - s; with rescaling the length then follows the other pass.
  if (std::fabs(c.s - (1 - r.s)) < 1e-2)
    finding.cause = "guidance.exchanged", finding.fix = "conditional and unconditional prediction are exchanged";
  else if (std::fabs(c.s - r.s) > 1e-3 * std::fabs(r.s))
    finding.cause = "guidance.scale", finding.fix = fmt::format("use guidance {}, not {}", number(r.s), number(c.s));
  else
    finding.cause = "guidance.rescale",
    finding.fix = r.span == Sharing::kNone ? "do not rescale the prediction"
                                           : "rescale the combined prediction as the reference does: " + formula(r);
  out.push_back(std::move(finding));
}

}  // namespace

void search_guidance(Case& failing, Findings& out) {
  if (failing.r.rank() < 2 || failing.r.last() < 4 || !std::isfinite(failing.error)) return;
  const auto tag_of = [&](const Item& item) {
    for (const auto& [key, value] : failing.reference_run().records[item.reference].key.tags)
      if (key == "pass") return value;
    return std::string();
  };
  const Item *cond = nullptr, *uncond = nullptr;
  for (const Item& item : failing.items) {
    if (item.shape != failing.r.shape) continue;
    const std::string pass = tag_of(item), leaf = leaf_of(item.name);
    if (!cond && pass == "cond" && failing.module.empty()) cond = &item;
    if (!uncond && pass == "uncond" && failing.module.empty()) uncond = &item;
  }
  if (!cond || !uncond) return;
  for (const Item* item : {cond, uncond})
    if (failing.reference_of(*item).size() != failing.r.size() ||
        failing.candidate_of(*item).size() != failing.r.size())
      return;
  // All rows: some forms scale the whole.
  const auto rows = [](const Values& x) { return reshaped(x, {x.rows(), x.last()}); };
  const int64_t batch = failing.r.rank() > 2 ? failing.r.shape[0] : 1;
  const auto side = [&](bool mine, int64_t item) {  // of the whole batch where that is -1
    const auto part = [&](const Values& x) {
      return rows(item < 0 ? x : batch_item(reshaped(x, failing.r.shape), item, batch));
    };
    const auto of = [&](const Item* of_pass) -> const Values& {
      return mine ? failing.candidate_of(*of_pass) : failing.reference_of(*of_pass);
    };
    return Side{part(of(cond)), part(of(uncond)), part(mine ? failing.c : failing.r)};
  };
  // Where some items of a batch are right, the first wrong one is asked by itself.
  const size_t each = failing.r.v.size() / static_cast<size_t>(batch);
  int64_t wrong = -1, right = 0;
  for (int64_t at = 0; batch > 1 && at < batch; ++at) {
    const auto item = [&](const Values& x) { return std::span(x.v).subspan(static_cast<size_t>(at) * each, each); };
    if (relative_error(item(failing.c), item(failing.r)) <= failing.tolerance)
      ++right;
    else if (wrong < 0)
      wrong = at;
  }
  if (right > 0 && wrong >= 0)
    judge(failing, out, side(false, wrong), side(true, wrong), 1, fmt::format(" (item {} of the batch)", wrong));
  else
    judge(failing, out, side(false, -1), side(true, -1), batch, "");
}

}  // namespace lockstep
