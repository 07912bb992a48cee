// Values that no computation means: NaN, infinities, zeros, one constant, denormals; and noise drawn anew.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/case/family.h"

namespace lockstep {
namespace {

struct Census {
  int64_t nan = 0, inf = 0, zero = 0, denormal = 0, count = 0;
  bool constant = true;
  double mean = 0, variance = 0, kurtosis = 0;
};

Census census(const Values& x) {
  Census out;
  out.count = x.size();
  double sum = 0;
  for (const float value : x.v) {
    out.nan += std::isnan(value), out.inf += std::isinf(value), out.zero += value == 0;
    out.denormal += value != 0 && std::fabs(value) < 1e-30f;
    out.constant = out.constant && value == x.v[0];
    if (std::isfinite(value)) sum += value;
  }
  const double n = static_cast<double>(std::max<int64_t>(1, out.count));
  out.mean = sum / n;
  double second = 0, fourth = 0;
  for (const float value : x.v) {
    if (!std::isfinite(value)) continue;
    const double d = value - out.mean;
    second += d * d, fourth += d * d * d * d;
  }
  out.variance = second / n;
  out.kurtosis = out.variance > 0 ? fourth / n / (out.variance * out.variance) : 0;
  return out;
}

// Rows that are zeros here and not in the reference; what else differs must not.
int64_t lost_rows(const Values& r, const Values& c, double tolerance) {
  int64_t lost = 0;
  if (c.rows() < 3 || c.last() < 2) return 0;
  for (int64_t i = 0; i < c.rows(); ++i) {
    const bool zero = std::all_of(c.row(i).begin(), c.row(i).end(), [](float x) { return x == 0; });
    if (zero && rms(r.row(i)) > 0)
      ++lost;
    else if (relative_error(c.row(i), r.row(i)) > std::max(1e-3, tolerance))
      return 0;
  }
  return lost;
}

// Values here and there are zeros, the others the reference's times one factor: a dropout that is still on. The factor,
// 0 when it is not so.
double factor_of_the_rest(const Values& r, const Values& c, double tolerance) {
  double rc = 0, rr = 0, dd = 0, cc = 0;
  size_t lost = 0, zero_r = 0;
  for (size_t i = 0; i < c.v.size(); ++i) {
    zero_r += r.v[i] == 0;
    if (c.v[i] == 0 && r.v[i] != 0) ++lost;
    if (c.v[i] != 0) rc += static_cast<double>(r.v[i]) * c.v[i], rr += static_cast<double>(r.v[i]) * r.v[i];
  }
  const size_t n = c.v.size();
  if (n < 64 || lost * 50 < n || lost * 10 > n * 9 || zero_r * 2 > n || !(rr > 0)) return 0;
  const double factor = rc / rr;
  for (size_t i = 0; i < n; ++i) {
    if (c.v[i] == 0) continue;
    const double d = c.v[i] - factor * r.v[i];
    dd += d * d, cc += static_cast<double>(c.v[i]) * c.v[i];
  }
  return dd <= std::pow(std::max(1e-4, tolerance), 2) * cc ? factor : 0;
}

bool is_standard_normal(const Census& x) {
  const double error = 5 / std::sqrt(static_cast<double>(x.count));
  return x.count >= 64 && std::fabs(x.mean) < error && std::fabs(x.variance - 1) < 1.5 * error &&
         std::fabs(x.kurtosis - 3) < 5 * error;
}

// What a generator gives by another call: empty when it looks like nothing drawn.
std::string drawn_words(const Census& x) {
  if (is_standard_normal(x)) return "standard normal noise, but another draw";
  const double error = 5 / std::sqrt(static_cast<double>(x.count)), deviation = std::sqrt(x.variance);
  if (x.count < 256 || !(x.variance > 0)) return "";
  if (std::fabs(x.kurtosis - 3) < 5 * error && std::fabs(x.mean) < error * deviation)
    return fmt::format("another draw of normal noise, of deviation {:.4g}", deviation);
  if (std::fabs(x.kurtosis - 1.8) < 2 * error)
    return fmt::format("drawn evenly from {:.3g} to {:.3g}", x.mean - std::sqrt(3.0) * deviation,
                       x.mean + std::sqrt(3.0) * deviation);
  return "";
}

}  // namespace

void search_garbage(Case& failing, Findings& out) {
  const Census r = census(failing.r), c = census(failing.c);
  const auto add = [&](Cause cause, std::string explanation, std::string fix, double complexity = 0.5) {
    out.push_back(
        {.cause = cause, .explanation = std::move(explanation), .fix = std::move(fix), .complexity = complexity});
  };
  if (c.nan && !r.nan)
    add("garbage.nan", fmt::format("yours holds {} NaN of {} values, the reference none", c.nan, c.count),
        "look for 0/0, inf - inf, or memory that was never written, in this stage: its inputs are finite");
  else if (c.inf && !r.inf)
    add("garbage.infinite", fmt::format("yours holds {} infinities of {} values, the reference none", c.inf, c.count),
        "a value passed the largest of its dtype (65504 in fp16), or something was divided by 0");
  if (c.count >= 8 && c.zero == c.count && r.zero < r.count)
    add("garbage.zeros", "yours is all zeros: the result was never written, or was multiplied by nothing",
        "check that the kernel ran and that its output buffer is the one that is read");
  else if (c.constant && !r.constant && c.count >= 8)
    add("garbage.constant", fmt::format("every value of yours is {:.6g}", failing.c.v[0]),
        "one value was broadcast over the whole tensor: check the index or stride of the source");
  else if (const int64_t lost = c.zero ? lost_rows(failing.r, failing.c, failing.tolerance) : 0)
    add("garbage.zeros",
        fmt::format("{} of {} rows of yours are all zeros, the others are right", lost, failing.c.rows()),
        "these rows were never written: check the bounds of the loop, the mask, or the length that was given");
  else if (const double factor = c.zero ? factor_of_the_rest(failing.r, failing.c, failing.tolerance) : 0; factor != 0)
    add("garbage.zeros",
        fmt::format("{} of {} values of yours are zeros, here and there, the others {:.4g} times the reference's",
                    c.zero, c.count, factor),
        std::fabs(factor - 1) > 1e-3 ? "a dropout is on: run the model for inference, not for training"
                                     : "values are lost: check the mask, or what is written over the result",
        0.9);
  if (c.denormal * 10 > c.count && r.denormal * 100 < r.count)
    add("garbage.denormal",
        fmt::format("{} of {} values of yours are of denormal size (below 1e-30)", c.denormal, c.count),
        "memory of another dtype or out of bounds is read: check dtype, offset and length of the buffer");
  // Only a stage of the pipeline draws noise; a module's output that looks normal is something else.
  const bool drawn = failing.name.find('.') == std::string::npos;
  if (const std::string words = drawn_words(c);
      drawn && is_standard_normal(r) && !words.empty() && (is_standard_normal(c) || failing.step < 0)) {
    const double limit = 5 / std::sqrt(static_cast<double>(r.count));
    std::vector<float> a = failing.r.v, b = failing.c.v;
    std::sort(a.begin(), a.end()), std::sort(b.begin(), b.end());
    // Even numbers from the same seed are what the normal ones were made of.
    const double related = is_standard_normal(c) ? limit : 0.6;
    if (std::fabs(correlation(failing.r.v, failing.c.v)) < related && relative_error(b, a) > failing.tolerance)
      add("latents.other_noise",
          "reference: standard normal noise; yours: " + words + ": seed, generator or order of draws differ",
          "start both from one saved tensor (load the reference's noise), or use the reference's generator and seed",
          1.6);
  }
}

}  // namespace lockstep
