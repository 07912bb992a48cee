// Two predictions combined: uncond + s (cond - uncond), one of them perhaps multiplied first, and the result rescaled.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/search/number_formats.h"
#include "measure/values.h"

namespace lockstep::guidance {

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

// One of the two predictions is multiplied before they are combined: by what makes it lie nearest to the other one, or
// as long as it.
enum class Fitting { kNone, kProjection, kLength, kDeviation };

struct Params {
  double s = 1;
  Fitting fitting = Fitting::kNone;
  Of fitted = Of::kUncond;  // which of the two
  Sharing fitted_by = Sharing::kWhole;
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
  bool exchanged = false;  // cond and uncond
};

std::string formula(const Params& p);
std::vector<double> ratios(const std::vector<double>& over, const std::vector<double>& under);

// The two predictions, [batch, tokens, channels], and what shares a factor in them.
class Mix {
 public:
  Mix(Values cond, Values uncond, int64_t batch) : a_(std::move(cond)), b_(std::move(uncond)), batch_(batch) {}

  bool has(Sharing span) const {
    return span == Sharing::kItem ? batch_ > 1 : span == Sharing::kPixel ? a_.last() % 4 == 0 && a_.last() >= 16 : true;
  }
  size_t groups(Sharing span) const;
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
  Lengths lengths(const Values& x, Sharing span) const;
  // Before anything is rescaled.
  Values combined(const Params& p) const;
  Lengths lengths(Of which, const Values& own, Sharing span) const {
    return lengths(which == Of::kOwn ? own : which == Of::kCond ? a_ : b_, span);
  }
  Values result(const Params& p) const;
  // Group by group y = p cond + q uncond; s = p / (p + q) whatever the group was multiplied with.
  double solve_scale(const Values& y, Sharing span) const;
  // The same two exchanged, or with one of them multiplied, as `p` says; what follows is reckoned with those.
  Mix prepared(const Params& p) const;
  const Values& cond() const { return a_; }
  const Values& uncond() const { return b_; }

 private:
  Values a_, b_;
  int64_t batch_;
};

}  // namespace lockstep::guidance
